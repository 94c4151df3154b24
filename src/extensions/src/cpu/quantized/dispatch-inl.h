// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32. The task table of an instruction
// set and an element type (paths.h) chooses the path of a task.
#pragma once

#include "cpu/quantized/blocked_f32-inl.h"
#include "cpu/quantized/gemv-inl.h"
#include "cpu/quantized/outliers-inl.h"
#include "cpu/quantized/paths.h"
#include "cpu/quantized/skinny-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The kernel of a path: packed_bytes, pack and run, and the most rows of a task; blocked ones have scratch
// and a size of pieces and tasks, too.
template <Path kPath, int kBits, Element kElement>
struct KernelOf;

template <int kBits, Element kElement>
struct KernelOf<Path::gemv_fma, kBits, kElement> : Gemv<F32Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::skinny_fma, kBits, kElement> : Skinny<F32Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::blocked_fma, kBits, kElement> : BlockedF32<kBits, kElement> {};

// A GEMV or skinny kernel with the outliers of its rows, which follow the packed rows. As the path of many
// rows it runs on a piece of them at a time.
template <Path kPath, int kPieceRows, int kBits, Element kElement>
struct WithOutliers {
  typedef KernelOf<kPath, kBits, kElement> Kernel;
  static_assert(kPieceRows <= Kernel::kMaxRows);
  static constexpr int kPackRows = kPieceRows, kMC = kPieceRows;
  static constexpr int kNC = 512;

  static size_t packed_bytes(const QuantizedTask& task) {
    return row_bytes(task) + OutlierLayout<kElement>(task).bytes();
  }

  static void pack(const QuantizedTask& task, void* packed) {
    Kernel::pack(zero_outliers<kElement>(task, outliers(task, packed)), packed);
  }

  static size_t scratch_bytes(const QuantizedTask&) { return 0; }

  static void run(const QuantizedTask& task, const void* packed, void*) {
    const OutlierLayout<kElement> layout(task);
    void* const memory = outliers(task, packed);
    Kernel::run({task, layout.ends(memory), layout.places(memory)}, packed);
  }

 private:
  static size_t row_bytes(const QuantizedTask& task) { return (Kernel::packed_bytes(task) + 63) / 64 * 64; }
  static void* outliers(const QuantizedTask& task, const void* packed) {
    return (char*)packed + row_bytes(task);
  }
};

// The path of many rows, if it is a blocked one.
template <Path kPath, int kPieceRows, int kBits, Element kElement>
struct BlockedOrPieces : KernelOf<kPath, kBits, kElement> {};
template <int kPieceRows, int kBits, Element kElement>
struct BlockedOrPieces<Path::skinny_amx_bf16, kPieceRows, kBits, kElement>
    : WithOutliers<Path::skinny_amx_bf16, kPieceRows, kBits, kElement> {};

template <const PathTable& kTable, Element kElement>
struct QuantizedProduct {
  static size_t packed_bytes(const QuantizedTask& task) {
    return with_kernel(task, [&](auto kernel) { return kernel.packed_bytes(task); });
  }
  static void pack(const QuantizedTask& task, void* packed) {
    with_kernel(task, [&](auto kernel) { kernel.pack(task, packed); });
  }
  static size_t scratch_bytes(const QuantizedTask& task) {
    return with_kernel(task, [&](auto kernel) { return kernel.scratch_bytes(task); });
  }
  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    with_kernel(task, [&](auto kernel) { kernel.run(task, packed, scratch); });
  }

  static constexpr QuantizedKernels kernels() {
    typedef BlockedOrPieces<kTable.blocked, kTable.max_streamed_rows(), 4, kElement> Many;  // as for 8 bits
    return {packed_bytes,      pack, scratch_bytes, run, kTable.max_streamed_rows(), Many::kPackRows, Many::kMC,
            Many::kNC};
  }

 private:
  // Calls call(kernel) with the kernel of the task's path.
  template <class Call>
  static auto with_kernel(const QuantizedTask& task, Call call) {
    if (task.bits == 4) return with_bits<4>(task, call);
    return with_bits<8>(task, call);
  }
  template <int kBits, class Call>
  static auto with_bits(const QuantizedTask& task, Call call) {
    if (task.streamed) return with_streamed<kBits, 0>(task, call);
    return call(BlockedOrPieces<kTable.blocked, kTable.max_streamed_rows(), kBits, kElement>());
  }
  template <int kBits, int kRange, class Call>
  static auto with_streamed(const QuantizedTask& task, Call call) {
    constexpr RowRange range = kTable.streamed[kRange];
    if constexpr (range.max_rows < kTable.max_streamed_rows())
      if (task.rows > range.max_rows) return with_streamed<kBits, kRange + 1>(task, call);
    return call(WithOutliers<range.path, range.max_rows, kBits, kElement>());
  }
};

template <const PathTable& kTable, Element kElement>
static void register_quantized(Kernels& kernels) {
  kernels.quantized[(int)kElement] = QuantizedProduct<kTable, kElement>::kernels();
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
