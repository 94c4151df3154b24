// Blocked product in float32. The B operand is a block of decoded weights [k][output], which is multiplied
// with all rows of the task while it is in the caches; A is the rows of x in place. So float32 x is not
// packed, y is not transposed, and rows are not padded to vectors: in gemm/blocked-inl.h, with rows across
// the lanes, 17 rows cost as much as 32 (docs/quantized.md).
#pragma once

#include "cpu/gemm/microkernel-inl.h"
#include "cpu/interface/quantized_kernels.h"
#include "cpu/quantized/codec/transposed_words-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Decodes a word into weights in float32, one every `stride` floats.
template <int kBits, int kIndex = 0>
VEC_FN void decode_word(W word, F scale, F bias, float* out, int64_t stride) {
  if constexpr (kIndex < 32 / kBits) {
    store(out + kIndex * stride, fma(decode_quant<kBits, kIndex>(word), scale, bias));
    decode_word<kBits, kIndex + 1>(word, scale, bias, out, stride);
  }
}

template <int kBits, Element kElement>
struct BlockedF32 {
  static constexpr int kNC = kRowVectors * kLanes;
  static constexpr int kMC = 256;
  static constexpr int kPackRows = 64;
  // No more quantization groups than lanes.
  static constexpr int kKC = kLanes < 8 ? 128 : 256;

  static size_t packed_bytes(const QuantizedTask& task) {
    return kElement == Element::f32 ? 0 : task.rows * task.num_groups * task.group_size * sizeof(float);
  }
  // Quantization groups are the parts.
  static void pack(const QuantizedTask& task, void* packed, int64_t begin, int64_t end) {
    const int64_t K = task.num_groups * task.group_size;
    for (int64_t m = 0; m < task.rows; m++) {
      auto* x = (const StorageOf<kElement>*)task.x + m * task.x_row_stride;
      for (int64_t k = begin * task.group_size; k < end * task.group_size; k += kLanes)
        store((float*)packed + m * K + k, load_as<kElement>(x + k));
    }
  }

  // The sums [row][output], then the decoded weights [step][output].
  static size_t scratch_bytes(const QuantizedTask&) { return kNC * (kMC + kKC) * sizeof(float); }

  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    typedef StorageOf<kElement> T;
    const int64_t K = task.num_groups * task.group_size;
    const bool in_place = kElement == Element::f32;
    auto* x = (const float*)(in_place ? task.x : packed);
    const int64_t x_stride = in_place ? task.x_row_stride : K;
    float *sums = (float*)scratch, *weights = sums + kNC * kMC;
    memset(sums, 0, task.rows * kNC * sizeof(float));
    for (int64_t begin = 0; begin < K; begin += kKC) {
      const int depth = K - begin < kKC ? (int)(K - begin) : kKC;
      for (int64_t n = 0; n < kNC; n += kLanes) {
        const int64_t row = n < task.outputs ? n : 0, left = task.outputs - row;
        const LaneRows<uint32_t> words(task.w + row * task.w_row_stride, task.w_row_stride, left,
                                       K * kBits / 32);
        const LaneRows<T> scales((const T*)task.scales + row * task.scales_row_stride, task.scales_row_stride,
                                 left, task.num_groups);
        const LaneRows<T> biases((const T*)task.biases + row * task.biases_row_stride, task.biases_row_stride,
                                 left, task.num_groups);
        decode_block(words, scales, biases, task.group_size * kBits / 32, begin, depth, weights + n);
      }
      gemm_vectors<FloatMac, true, LayoutA::row_major>(kRowVectors, {x + begin, x_stride, 1, 0}, weights,
                                                       depth, sums, (int)task.rows);
    }
    for (int64_t m = 0; m < task.rows; m++)
      for (int64_t n = 0; n < task.outputs; n += kLanes)
        store_some<kElement>((T*)task.y + m * task.y_row_stride + n, load(sums + m * kNC + n),
                             task.outputs - n);
  }

 private:
  // Decodes the weights of kLanes outputs, from element `begin` on, into the lanes at `out`.
  static void decode_block(const LaneRows<uint32_t>& words, const LaneRows<StorageOf<kElement>>& scales,
                           const LaneRows<StorageOf<kElement>>& biases, int group_words, int64_t begin,
                           int depth, float* out) {
    const int64_t first_word = begin * kBits / 32;
    const int count = depth * kBits / 32;
    TransposedScales<kBits, kElement> factors;
    factors.read(scales, biases, first_word / group_words);
    float transposed[kLanes * kLanes];
    for (int at = 0; at < count; at += kLanes) {
      transpose_words(words, first_word + at, transposed);
      for (int word = 0; word < kLanes && at + word < count; word++) {
        const int group = (at + word) / group_words;
        decode_word<kBits>(load_words<kBits>((const uint32_t*)transposed + word * kLanes),
                           factors.scale[group], factors.bias[group], out + (at + word) * (32 / kBits) * kNC,
                           kNC);
      }
    }
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
