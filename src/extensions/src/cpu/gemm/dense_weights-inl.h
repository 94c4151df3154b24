// Dense weights as products take them: where they lie, or copied block by block into the unit of a product.
#pragma once

#include "cpu/gemm/blocked-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

VEC_FN ProductTask product_of(const LinearTask& task) {
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

  template <class Product>
  void fill(int64_t n, int64_t begin, int depth, typename Product::Weight* out, int64_t apart) const {
    constexpr int kTerms = Product::kTerms;
    const T* p = row(n) + begin;
    for (int e = 0, vector = 0; e < depth; e += kElementsOfVector<Product>) {
      F terms[kTerms];
#pragma GCC unroll 3
      for (int i = 0; i < kTerms; i++)
        terms[i] = Product::template read<kElement>(p + e, task.K - begin - e, i);
#pragma GCC unroll 3
      for (int i = 0; i < kTerms; i++) store((float*)(out + vector++ * apart), terms[i]);
    }
  }

  void ask_for(int64_t n, int64_t begin, int depth) const { prefetch(row(n) + begin, depth * sizeof(T)); }

  template <class Product>
  WeightRows<typename Product::Weight> in_place() const {
    typedef typename Product::Weight Weight;
    constexpr int kAlignment = 4;  // of what a product broadcasts
    if (task.rows <= Product::kInPlaceTiles * kTileLanes && sizeof(T) == sizeof(Weight) &&
        task.K % Product::kDepthUnit == 0 && task.outputs % Product::kOutputUnit == 0 &&
        task.w_row_stride * sizeof(T) % kAlignment == 0 && (uintptr_t)task.w % kAlignment == 0)
      return {(const Weight*)task.w, task.w_row_stride, kElementsOfVector<Product>,
              kLanes * task.w_row_stride, 0};
    return {};
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
