// Dense weights for the drivers: read in place, or packed block by block as an arithmetic reads it.
#pragma once

#include "cpu/gemm/arithmetic_f32-inl.h"
#include "cpu/interface/linear_kernels.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

VEC_FN GemmTask gemm_task(const LinearTask& task) {
  return {task.x, task.x_row_stride, task.y, task.y_row_stride, task.rows, task.outputs, task.K};
}

template <Element kElement>
struct DenseWeights {
  typedef StorageOf<kElement> T;

  const LinearTask& task;

  const T* row(int64_t n) const { return (const T*)task.w + n * task.w_row_stride; }

  float bias(int64_t n) const {
    if (!task.bias) return 0;
    float lanes[kLanes];
    store(lanes, fill_from<kElement>((const T*)task.bias + n));
    return lanes[0];
  }

  template <class Arithmetic>
  void fill(int64_t n, int64_t begin, int depth, typename Arithmetic::Weight* out,
            int64_t vector_stride) const {
    constexpr int kParts = Arithmetic::kParts;
    const T* p = row(n) + begin;
    for (int e = 0, vector = 0; e < depth; e += kElementsOfVector<Arithmetic>) {
      F parts[kParts];
#pragma GCC unroll 3
      for (int i = 0; i < kParts; i++)
        parts[i] = Arithmetic::template read<kElement>(p + e, task.K - begin - e, i);
#pragma GCC unroll 3
      for (int i = 0; i < kParts; i++) store((float*)(out + vector++ * vector_stride), parts[i]);
    }
  }

  void prefetch_block(int64_t n, int64_t begin, int depth) const {
    prefetch(row(n) + begin, depth * sizeof(T));
  }

  template <class Arithmetic>
  WeightBlock<typename Arithmetic::Weight> in_place() const {
    typedef typename Arithmetic::Weight Weight;
    constexpr int kAlignment = 4;  // of the 32-bit words that a microkernel broadcasts
    if (task.rows <= Arithmetic::kInPlaceTiles * kTileLanes && sizeof(T) == sizeof(Weight) &&
        task.K % Arithmetic::kDepthUnit == 0 && task.outputs % Arithmetic::kOutputUnit == 0 &&
        task.w_row_stride * sizeof(T) % kAlignment == 0 && (uintptr_t)task.w % kAlignment == 0)
      return {(const Weight*)task.w, task.w_row_stride, kElementsOfVector<Arithmetic>,
              kLanes * task.w_row_stride, 0};
    return {};
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
