// Products with quantized weights: y (M, N) = x (M, K) w^T, sums in float32. A table for each instruction set
// and element type (paths.h) chooses the path of a task.
#pragma once

#include "core/divide_up.h"
#include "cpu/interface/kernels.h"
#include "cpu/quantized/blocked_f32-inl.h"
#include "cpu/quantized/gemv-inl.h"
#include "cpu/quantized/outliers-inl.h"
#include "cpu/quantized/paths.h"
#include "cpu/quantized/skinny-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The kernel of a path. All have packed_bytes, pack_parts, pack and run; GEMV and skinny kernels prepare_row
// and kMaxRows; blocked ones scratch_bytes, kPackRows, kMC (rows of a task) and kNC (outputs of a task).
template <Path kPath, int kBits, Element kElement>
struct KernelOf;

template <int kBits, Element kElement>
struct KernelOf<Path::gemv_fma, kBits, kElement> : Gemv<F32Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::skinny_fma, kBits, kElement> : Skinny<F32Codec<kBits>, kElement> {};
template <int kBits, Element kElement>
struct KernelOf<Path::blocked_fma, kBits, kElement> : BlockedF32<kBits, kElement> {};

// A GEMV or skinny kernel with the outliers of its rows, which follow the packed rows. As PathTable::blocked
// it runs on pieces of kPieceRows rows.
template <Path kPath, int kPieceRows, int kBits, Element kElement>
struct WithOutliers {
  typedef KernelOf<kPath, kBits, kElement> Kernel;
  static_assert(kPieceRows <= Kernel::kMaxRows);
  static constexpr int kPackRows = kPieceRows, kMC = kPieceRows;
  static constexpr int kNC = 512;

  static size_t packed_bytes(const QuantizedTask& task) {
    return row_bytes(task) + TaskWithOutliers::bytes<kElement>(task);
  }

  static constexpr bool kPreparesRows = true;
  static void prepare_row(const QuantizedTask& task, void* packed, int64_t m) {
    const TaskWithOutliers with_outliers = of(task, packed);
    zero_outliers<kElement>(with_outliers, m);
    Kernel::prepare_row(with_outliers, packed, m);
  }
  static int64_t pack_parts(const QuantizedTask& task) { return Kernel::pack_parts(task); }
  static void pack(const QuantizedTask& task, void* packed, int64_t begin, int64_t end) {
    Kernel::pack(of(task, packed), packed, begin, end);
  }

  static size_t scratch_bytes(const QuantizedTask&) { return 0; }

  static void run(const QuantizedTask& task, const void* packed, void*) {
    Kernel::run(of(task, packed), packed);
  }

 private:
  static size_t row_bytes(const QuantizedTask& task) {
    return round_up(Kernel::packed_bytes(task), kCacheLine);
  }
  static TaskWithOutliers of(const QuantizedTask& task, const void* packed) {
    return {task, (char*)packed + row_bytes(task)};
  }
};

// The kernel of PathTable::blocked: blocked paths as they are, skinny_amx_bf16 on pieces. Another skinny path
// needs its own specialisation.
template <Path kPath, int kPieceRows, int kBits, Element kElement>
struct BlockedOrPieces : KernelOf<kPath, kBits, kElement> {
  static constexpr bool kPreparesRows = false;
  static void prepare_row(const QuantizedTask&, void*, int64_t) {}
  static int64_t pack_parts(const QuantizedTask& task) { return task.num_groups; }
};
template <int kPieceRows, int kBits, Element kElement>
struct BlockedOrPieces<Path::skinny_amx_bf16, kPieceRows, kBits, kElement>
    : WithOutliers<Path::skinny_amx_bf16, kPieceRows, kBits, kElement> {};

template <const PathTable& kTable, Element kElement>
struct QuantizedProduct {
  static size_t packed_bytes(const QuantizedTask& task) {
    return with_kernel(task, [&](auto kernel) { return kernel.packed_bytes(task); });
  }
  static bool prepares_rows(const QuantizedTask& task) {
    return with_kernel(task, [&](auto kernel) { return kernel.kPreparesRows; });
  }
  static void prepare_row(const QuantizedTask& task, void* packed, int64_t m) {
    with_kernel(task, [&](auto kernel) { kernel.prepare_row(task, packed, m); });
  }
  static int64_t pack_parts(const QuantizedTask& task) {
    return with_kernel(task, [&](auto kernel) { return kernel.pack_parts(task); });
  }
  static void pack(const QuantizedTask& task, void* packed, int64_t begin, int64_t end) {
    with_kernel(task, [&](auto kernel) { kernel.pack(task, packed, begin, end); });
  }
  static size_t scratch_bytes(const QuantizedTask& task) {
    return with_kernel(task, [&](auto kernel) { return kernel.scratch_bytes(task); });
  }
  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    with_kernel(task, [&](auto kernel) { kernel.run(task, packed, scratch); });
  }

  static constexpr QuantizedKernels kernels() {
    typedef BlockedOrPieces<kTable.blocked, kTable.max_streamed_rows(), 4, kElement> Sizes;  // as for 8 bits
    return {packed_bytes,
            prepares_rows,
            prepare_row,
            pack_parts,
            pack,
            scratch_bytes,
            run,
            kTable.max_streamed_rows(),
            Sizes::kPackRows,
            Sizes::kMC,
            Sizes::kNC};
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

// The product that takes one path for any number of rows: no row depends on how many others there are.
template <const PathTable& kTable, Element kElement>
struct InvariantProduct {
  template <int kBits>
  using Kernel = WithOutliers<kTable.invariant(), kTable.max_streamed_rows(), kBits, kElement>;

  static size_t packed_bytes(const QuantizedTask& task) {
    return task.bits == 4 ? Kernel<4>::packed_bytes(task) : Kernel<8>::packed_bytes(task);
  }
  static bool prepares_rows(const QuantizedTask&) { return true; }
  static void prepare_row(const QuantizedTask& task, void* packed, int64_t m) {
    task.bits == 4 ? Kernel<4>::prepare_row(task, packed, m) : Kernel<8>::prepare_row(task, packed, m);
  }
  static int64_t pack_parts(const QuantizedTask& task) {
    return task.bits == 4 ? Kernel<4>::pack_parts(task) : Kernel<8>::pack_parts(task);
  }
  static void pack(const QuantizedTask& task, void* packed, int64_t begin, int64_t end) {
    task.bits == 4 ? Kernel<4>::pack(task, packed, begin, end) : Kernel<8>::pack(task, packed, begin, end);
  }
  static size_t scratch_bytes(const QuantizedTask&) { return 0; }
  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    task.bits == 4 ? Kernel<4>::run(task, packed, scratch) : Kernel<8>::run(task, packed, scratch);
  }

  static constexpr QuantizedKernels kernels() {
    typedef Kernel<4> Sizes;  // as for 8 bits
    return {packed_bytes,     prepares_rows, prepare_row, pack_parts, pack, scratch_bytes, run, 0,
            Sizes::kPackRows, Sizes::kMC,    Sizes::kNC};
  }
};

template <const PathTable& kTable, Element kElement>
static void register_quantized(Kernels& kernels) {
  kernels.quantized[(int)kElement] = QuantizedProduct<kTable, kElement>::kernels();
  kernels.invariant_quantized[(int)kElement] = InvariantProduct<kTable, kElement>::kernels();
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
