// Many rows times quantized weights rounded to bfloat16: the product of dense weights, block by block of
// weights that are unpacked instead of copied.
#pragma once

#include "cpu/gemm/arithmetic_bf16-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Weights for `product`, which takes whole groups of them. A row is unpacked along K, as it lies.
template <int kBits>
struct PackedWeights {
  const QuantizedTask& task;

  float bias(int64_t) const { return 0; }

  template <class Product>
  void fill(int64_t n, int64_t begin, int depth, uint16_t* out, int64_t apart) const {
    const uint8_t* numbers = bytes(n, begin);
    const int64_t group = begin / task.group;
    auto* scale = (const uint16_t*)task.scales + n * task.scales_row_stride + group;
    auto* bias = (const uint16_t*)task.biases + n * task.biases_row_stride + group;
    for (int k = 0; k < depth; k += task.group, scale++, bias++) {
      const GroupOfPairs<kBits> weights(*scale, *bias);
      for (int e = 0; e < task.group; e += 2 * kLanes, out += apart, numbers += kLanes * kBits / 4)
        store((float*)out, weights.unpack(numbers));
    }
  }

  void ask_for(int64_t n, int64_t begin, int depth) const { prefetch(bytes(n, begin), depth * kBits / 8); }

  template <class Product>
  WeightRows<uint16_t> in_place() const {
    return {};
  }

 private:
  const uint8_t* bytes(int64_t n, int64_t begin) const {
    return (const uint8_t*)(task.w + n * task.w_row_stride) + begin * kBits / 8;
  }
};

template <class Product>
struct RoundedMany {
  static_assert(Product::kDepth % 128 == 0);  // whole groups
  static constexpr int kPackRows = kTileLanes;
  static constexpr int kTaskRows = 4 * kTileLanes;  // their sums leave room for weights in the second cache
  static constexpr int kTaskOutputs = Product::kTaskOutputs;

  template <Element kElement>
  static size_t packed_bytes(const QuantizedTask& task) {
    const ProductTask all = product_of(task);
    return all.tiles() * packed_floats<Product>(all.K) * sizeof(float);
  }
  template <Element kElement>
  static void pack(const QuantizedTask& task, void* packed) {
    pack_product<Product, kElement>(product_of(task), (float*)packed);
  }

  template <Element>
  static size_t scratch_bytes(const QuantizedTask& task) {
    return product_bytes<Product>(product_of(task));
  }

  template <Element kElement, int kBits>
  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    static_assert(kElement == Element::bf16);
    product<Product, kElement>(product_of(task), PackedWeights<kBits>{task}, (const float*)packed,
                               (float*)scratch);
  }

 private:
  static ProductTask product_of(const QuantizedTask& task) {
    return {task.x,       task.x_row_stride,       task.y, task.y_row_stride, task.rows,
            task.outputs, task.groups * task.group};
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
