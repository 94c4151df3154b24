// Products with dense weights: y (M, N) = x (M, K) w^T + bias, sums in float32.
//
// A few rows take the skinny driver, which is limited by memory, more rows the blocked driver, limited by
// arithmetic. They round differently, so the bits of a row depend on the driver, and on nothing else.
#pragma once

#include "cpu/gemm/skinny-inl.h"
#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

template <class Arithmetic, Element kElement, class Prefetch = PrefetchL2>
struct SkinnyLinear {
  static size_t packed_bytes(const LinearTask& task) {
    return skinny_x_floats<Arithmetic>(task) * sizeof(float);
  }
  static void pack(const LinearTask& task, void* packed) {
    pack_skinny_dense<Arithmetic, kElement>(task, (float*)packed);
  }
  static size_t scratch_bytes(const LinearTask& task) { return skinny_sums_floats(task) * sizeof(float); }
  static void run(const LinearTask& task, const void* packed, void* scratch) {
    skinny_gemm<Arithmetic, kElement, Prefetch>(task, (const float*)packed, (float*)scratch);
  }

  static constexpr LinearKernel kernel = {
      packed_bytes, pack, scratch_bytes, run, true, Arithmetic::kNC, 0, 0};
};

template <class Arithmetic, Element kElement>
struct BlockedLinear {
  static size_t packed_bytes(const LinearTask& task) {
    return packed_blocked_bytes<Arithmetic>(gemm_task(task));
  }
  static void pack(const LinearTask& task, void* packed) {
    pack_blocked<Arithmetic, kElement>(gemm_task(task), (float*)packed, 0, task.K);
  }
  static size_t scratch_bytes(const LinearTask& task) {
    return blocked_scratch_bytes<Arithmetic>(gemm_task(task));
  }
  static void run(const LinearTask& task, const void* packed, void* scratch) {
    blocked_gemm<Arithmetic, kElement>(gemm_task(task), DenseWeights<kElement>{task}, (const float*)packed,
                                       (float*)scratch);
  }

  static constexpr LinearKernel kernel = {
      packed_bytes, pack, scratch_bytes, run, false, Arithmetic::kNC, kPackRows<Arithmetic>, kMC};
};

template <class Arithmetic, Element kElement>
static void register_linear(Kernels& kernels) {
  kernels.linear[(int)kElement] = [](int64_t rows) -> const LinearKernel& {
    return is_skinny_in_vectors(rows) ? SkinnyLinear<Arithmetic, kElement>::kernel
                                      : BlockedLinear<Arithmetic, kElement>::kernel;
  };
  kernels.invariant_linear[(int)kElement] = [](int64_t) -> const LinearKernel& {
    return BlockedLinear<Arithmetic, kElement>::kernel;
  };
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
