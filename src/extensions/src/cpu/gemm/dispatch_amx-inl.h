// Products with dense weights on processors with AMX.
#pragma once

#include "cpu/gemm/arithmetic_amx_bf16-inl.h"
#include "cpu/gemm/arithmetic_amx_split_bf16-inl.h"
#include "cpu/gemm/dispatch-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <Element kElement>
using SkinnyOnAmx = SkinnyLinear<F32Arithmetic, kElement, PrefetchL1>;

// Infinities cannot be split. Results that are not finite are computed again by the skinny driver, kRows rows
// at a time; others stay as they are.
template <Element kElement>
struct SplitBf16Linear {
  typedef BlockedLinear<AmxSplitBf16Arithmetic<kElement>, kElement> OnTiles;
  typedef StorageOf<kElement> T;
  typedef SkinnyOnAmx<kElement> Fallback;
  static constexpr int64_t kRows = 8;

  static size_t scratch_bytes(const LinearTask& task) {
    const size_t on_tiles = OnTiles::scratch_bytes(task),
                 fallback = Memory(rows_from(task, 0), nullptr).bytes;
    return on_tiles > fallback ? on_tiles : fallback;
  }

  static void run(const LinearTask& task, const void* packed, void* scratch) {
    OnTiles::run(task, packed, scratch);
    for (int64_t m = 0; m < task.rows; m += kRows) {
      LinearTask rows = rows_from(task, m);
      if (all_finite(rows)) continue;
      const Memory memory(rows, (char*)scratch);
      T* const y = (T*)rows.y;
      rows.y = memory.y;
      rows.y_row_stride = task.outputs;
      Fallback::pack(rows, memory.packed);
      Fallback::run(rows, memory.packed, memory.scratch);
      for (int64_t row = 0; row < rows.rows; row++)
        for (int64_t n = 0; n < task.outputs; n++) {
          T& result = y[row * task.y_row_stride + n];
          if (!finite(result)) result = memory.y[row * task.outputs + n];
        }
    }
  }

  static constexpr LinearKernel kernel = {OnTiles::packed_bytes,
                                          OnTiles::pack,
                                          scratch_bytes,
                                          run,
                                          false,
                                          AmxSplitBf16Arithmetic<kElement>::kNC,
                                          kPackRows<AmxSplitBf16Arithmetic<kElement>>,
                                          kMC};

 private:
  // The results of the fallback, its packed rows and its scratch.
  struct Memory {
    T* y;
    char *packed, *scratch;
    size_t bytes;

    Memory(const LinearTask& rows, char* from) {
      const size_t y_bytes = round_up(rows.rows * rows.outputs * sizeof(T), kCacheLine);
      const size_t packed_bytes = round_up(Fallback::packed_bytes(rows), kCacheLine);
      y = (T*)from;
      packed = from + y_bytes;
      scratch = packed + packed_bytes;
      bytes = y_bytes + packed_bytes + Fallback::scratch_bytes(rows);
    }
  };

  // Rows m to m + kRows, or to the last.
  static LinearTask rows_from(const LinearTask& task, int64_t m) {
    LinearTask rows = task;
    rows.x = (const T*)task.x + m * task.x_row_stride;
    rows.y = (T*)task.y + m * task.y_row_stride;
    rows.rows = task.rows - m < kRows ? task.rows - m : kRows;
    return rows;
  }

  static bool finite(float x) { return x - x == 0; }
  static bool finite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

  static bool all_finite(const LinearTask& rows) {
    bool all = true;
    for (int64_t row = 0; row < rows.rows; row++)
      for (int64_t n = 0; n < rows.outputs; n++)
        all &= finite(((const T*)rows.y)[row * rows.y_row_stride + n]);
    return all;
  }
};

// Split bf16 from kFirst rows on (benches/LOG.md).
template <Element kElement, int64_t kFirst>
static const LinearKernel& select_split_bf16(int64_t rows) {
  if (is_skinny(rows)) return SkinnyOnAmx<kElement>::kernel;
  if (rows < kFirst) return avx512_kernels().linear[(int)kElement](rows);
  return SplitBf16Linear<kElement>::kernel;
}

static void register_linear_on_amx(Kernels& kernels) {
  kernels.linear[(int)Element::f32] = select_split_bf16<Element::f32, 65>;
  kernels.linear[(int)Element::f16] = select_split_bf16<Element::f16, 13>;
  kernels.linear[(int)Element::bf16] = [](int64_t rows) -> const LinearKernel& {
    return is_skinny(rows) ? SkinnyOnAmx<Element::bf16>::kernel
                           : BlockedLinear<AmxBf16Arithmetic, Element::bf16>::kernel;
  };
  // float32 keeps the blocked driver of AVX-512, which is faster for the rows of decode steps.
  kernels.invariant_linear[(int)Element::f16] = [](int64_t) -> const LinearKernel& {
    return SplitBf16Linear<Element::f16>::kernel;
  };
  kernels.invariant_linear[(int)Element::bf16] = [](int64_t) -> const LinearKernel& {
    return BlockedLinear<AmxBf16Arithmetic, Element::bf16>::kernel;
  };
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
