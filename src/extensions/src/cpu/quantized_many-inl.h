// Many rows times quantized weights, as fast as the multiply units: blocks of weights are widened, outputs
// across the lanes, and multiplied with all rows of a task while they are in the caches. Rows of x are read
// where they lie if their type is that of the products.
#pragma once

#include "cpu/gemm-inl.h"
#include "cpu/quantized_words-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kManyOutputs = kRowVectors * kLanes;  // of a task
constexpr int kManyRows = 256;                      // of a task, at most

// Rows of x, as a product packs them or, if it need not, as they lie: steps of kPerStep elements.
struct ManyX {
  const float* data;
  int64_t stride;  // steps of a row
};

// Products in float32.
struct WideMany {
  static constexpr int kPerStep = 1;  // elements of K in a lane
  // Elements of K that are widened at a time; no more groups than lanes.
  static constexpr int kDepth = kLanes < 8 ? 128 : 256;

  typedef FloatMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  template <Element kElement>
  static size_t packed_bytes(const QuantizedTask& task) {
    return kElement == Element::f32 ? 0 : task.rows * task.groups * task.group * sizeof(float);
  }
  template <Element kElement>
  static void pack(const QuantizedTask& task, void* packed) {
    const int64_t K = task.groups * task.group;
    for (int64_t m = 0; m < task.rows; m++) {
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
      for (int64_t k = 0; k < K; k += kLanes) store((float*)packed + m * K + k, load_as<kElement>(x + k));
    }
  }

  // A word's weights, to steps `stride` floats apart.
  template <int kBits, int kIndex = 0>
  VEC_FN void widen(W word, F scale, F bias, float* out, int64_t stride) {
    if constexpr (kIndex < 32 / kBits) {
      store(out + kIndex * stride, fma(number<kBits, kIndex>(word), scale, bias));
      widen<kBits, kIndex + 1>(word, scale, bias, out, stride);
    }
  }

  // c[row][output] += x[row][first + step] * w[step][output].
  static void multiply(ManyX x, int64_t first, int rows, const float* w, int steps, float* c) {
    gemm_vectors<Mac, true, Walk::along_rows>(kRowVectors, {x.data + first, x.stride, 1, 0}, w, steps, c,
                                              rows);
  }
};

// Scratch: the sums [row][output], then the widened weights [step][output].
template <class Product>
static size_t many_floats() {
  return kManyOutputs * (kManyRows + Product::kDepth / Product::kPerStep);
}

// The weights of kLanes outputs, from element `begin` on, into the lanes at `out`.
template <class Product, Element kElement, int kBits>
static void widen_block(const RowBlock<uint32_t>& words, const RowBlock<StorageOf<kElement>>& scales,
                        const RowBlock<StorageOf<kElement>>& biases, int group_words, int64_t begin,
                        int depth, float* out) {
  constexpr int kSteps = 32 / kBits / Product::kPerStep;  // of a word
  const int64_t first_word = begin * kBits / 32;
  const int count = depth * kBits / 32;
  TurnedFactors<kBits, kElement> factors;
  factors.read(scales, biases, first_word / group_words);
  float turned[kLanes * kLanes];
  for (int at = 0; at < count; at += kLanes) {
    turn_words(words, first_word + at, turned);
    for (int word = 0; word < kLanes && at + word < count; word++) {
      const int group = (at + word) / group_words;
      Product::template widen<kBits>(load_words<kBits>((const uint32_t*)turned + word * kLanes),
                                     factors.scale[group], factors.bias[group],
                                     out + (at + word) * kSteps * kManyOutputs, kManyOutputs);
    }
  }
}

template <class Product, Element kElement, int kBits>
static void run_many(const QuantizedTask& task, ManyX x, float* sums) {
  typedef StorageOf<kElement> T;
  const int64_t K = task.groups * task.group;
  float* weights = sums + kManyOutputs * kManyRows;
  memset(sums, 0, task.rows * kManyOutputs * sizeof(float));
  Product::enter();
  for (int64_t begin = 0; begin < K; begin += Product::kDepth) {
    const int depth = K - begin < Product::kDepth ? (int)(K - begin) : Product::kDepth;
    for (int64_t n = 0; n < kManyOutputs; n += kLanes) {
      const int64_t row = n < task.outputs ? n : 0, left = task.outputs - row;
      const RowBlock<uint32_t> words(task.w + row * task.w_row_stride, task.w_row_stride, left,
                                     K * kBits / 32);
      const RowBlock<T> scales((const T*)task.scales + row * task.scales_row_stride, task.scales_row_stride,
                               left, task.groups);
      const RowBlock<T> biases((const T*)task.biases + row * task.biases_row_stride, task.biases_row_stride,
                               left, task.groups);
      widen_block<Product, kElement, kBits>(words, scales, biases, task.group * kBits / 32, begin, depth,
                                            weights + n);
    }
    Product::multiply(x, begin / Product::kPerStep, (int)task.rows, weights, depth / Product::kPerStep, sums);
  }
  Product::leave();
  for (int64_t m = 0; m < task.rows; m++)
    for (int64_t n = 0; n < task.outputs; n += kLanes)
      store_some<kElement>((T*)task.y + m * task.y_row_stride + n, load(sums + m * kManyOutputs + n),
                           task.outputs - n);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
