// Blocked product in bfloat16: quantized weights are decoded and rounded to bfloat16, block by block, for the
// blocked driver of dense weights (cpu/gemm/blocked-inl.h).
#pragma once

#include "cpu/gemm/arithmetic_bf16-inl.h"
#include "cpu/interface/quantized_kernels.h"
#include "cpu/quantized/codec/bf16_group-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// The codec of blocked_gemm, for blocks of whole quantization groups. Rows are decoded along K, as they lie.
template <int kBits>
struct QuantizedWeights {
  const QuantizedTask& task;

  float bias(int64_t) const { return 0; }

  template <class Arithmetic>
  void fill(int64_t n, int64_t begin, int depth, uint16_t* out, int64_t vector_stride) const {
    const uint8_t* quants = bytes(n, begin);
    const int64_t group = begin / task.group_size;
    auto* scale = (const uint16_t*)task.scales + n * task.scales_row_stride + group;
    auto* bias = (const uint16_t*)task.biases + n * task.biases_row_stride + group;
    for (int k = 0; k < depth; k += task.group_size, scale++, bias++) {
      const Bf16GroupCodec<kBits> codec(*scale, *bias);
      for (int e = 0; e < task.group_size;
           e += 2 * kLanes, out += vector_stride, quants += kLanes * kBits / 4)
        store((float*)out, codec.decode(quants));
    }
  }

  void prefetch_block(int64_t n, int64_t begin, int depth) const {
    prefetch(bytes(n, begin), depth * kBits / 8);
  }

  template <class Arithmetic>
  WeightBlock<uint16_t> in_place() const {
    return {};
  }

 private:
  const uint8_t* bytes(int64_t n, int64_t begin) const {
    return (const uint8_t*)(task.w + n * task.w_row_stride) + begin * kBits / 8;
  }
};

template <class Arithmetic, int kBits, Element kElement>
struct BlockedBf16 {
  static_assert(kElement == Element::bf16);
  static_assert(Arithmetic::kKC % 128 == 0);  // whole groups
  static constexpr int kPackRows = cpu::TINY_LLM_ISA::kPackRows<Arithmetic>;
  static constexpr int kMC = 4 * kTileLanes;  // its sums leave room for weights in the second-level cache
  static constexpr int kNC = Arithmetic::kNC;

  static size_t packed_bytes(const QuantizedTask& task) {
    return packed_blocked_bytes<Arithmetic>(gemm_task(task));
  }
  // Quantization groups are the parts.
  static void pack(const QuantizedTask& task, void* packed, int64_t begin, int64_t end) {
    pack_blocked<Arithmetic, kElement>(gemm_task(task), (float*)packed, begin * task.group_size,
                                       end * task.group_size);
  }

  static size_t scratch_bytes(const QuantizedTask& task) {
    return blocked_scratch_bytes<Arithmetic>(gemm_task(task));
  }

  static void run(const QuantizedTask& task, const void* packed, void* scratch) {
    blocked_gemm<Arithmetic, kElement>(gemm_task(task), QuantizedWeights<kBits>{task}, (const float*)packed,
                                       (float*)scratch);
  }

 private:
  static GemmTask gemm_task(const QuantizedTask& task) {
    return {task.x,
            task.x_row_stride,
            task.y,
            task.y_row_stride,
            task.rows,
            task.outputs,
            task.num_groups * task.group_size};
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
