// The matrix products of attention on AMX tiles.
#pragma once

#include "cpu/gemm/tiles_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Two neighbouring tiles of C are computed at a time: two columns of one row block, two rows of one column
// block, or a single tile where there is no neighbour.
enum class Pair { columns, rows, none };

template <int kSet>
VEC_FN void load_set(const char* c, int64_t second, int64_t stride) {
  if constexpr (kSet == 0) {
    _tile_loadd(0, c, stride);
    if (second) _tile_loadd(1, c + second, stride);
  } else {
    _tile_loadd(2, c, stride);
    if (second) _tile_loadd(3, c + second, stride);
  }
}

// Steps of 32 elements. Strides count bytes. The operand that both tiles of a pair share is loaded once,
// their own operands one after the other into the same register.
template <int kSet, Pair kPair>
VEC_FN void multiply_set(const char* a, int64_t a_stride, const char* b, int64_t b_stride, int steps) {
  for (int step = 0; step < steps; step++, a += 64, b += 16 * b_stride) {
    _tile_loadd(4, a, a_stride);
    _tile_loadd(5, b, b_stride);
    add_product<2 * kSet>();
    if constexpr (kPair == Pair::none) continue;
    if constexpr (kPair == Pair::columns) _tile_loadd(5, b + 64, b_stride);
    if constexpr (kPair == Pair::rows) _tile_loadd(4, a + 16 * a_stride, a_stride);
    add_product<2 * kSet + 1>();
  }
}

// Rows of the A operand.
struct AmxOperandA {
  const void* data;
  int64_t stride;  // in bytes
};

// C[16 * blocks][lanes] (+)= A[16 * blocks][32 * steps] * B[16 * steps pairs][lanes], lanes = 16 * vectors.
template <bool kAccumulate>
struct AmxGemm {
  AmxOperandA a;
  const char* b;
  int64_t stride;  // of B and C in bytes
  int steps;
  char* c;
  char* pending = nullptr;  // computed, not yet stored
  int64_t pending_second = 0;
  int set = 0;

  template <int kSet, Pair kPair>
  inline __attribute__((always_inline)) void compute(int block, int v) {
    char* out = c + block * 16 * stride + v * 64;
    int64_t second = kPair == Pair::columns ? 64 : kPair == Pair::rows ? 16 * stride : 0;
    if constexpr (kAccumulate)
      load_set<kSet>(out, second, stride);
    else
      zero_set<kSet>();
    multiply_set<kSet, kPair>((const char*)a.data + block * 16 * a.stride, a.stride, b + v * 64, stride,
                              steps);
    if (pending) store_set<1 - kSet>(pending, pending_second, stride);
    pending = out;
    pending_second = second;
  }

  template <Pair kPair>
  inline __attribute__((always_inline)) void next(int block, int v) {
    if (set == 0)
      compute<0, kPair>(block, v);
    else
      compute<1, kPair>(block, v);
    set = 1 - set;
  }

  void run(int blocks, int vectors) {
    for (int block = 0; block < blocks; block++)
      for (int v = 0; v + 1 < vectors; v += 2) next<Pair::columns>(block, v);
    if (vectors % 2 == 1) {
      for (int block = 0; block + 1 < blocks; block += 2) next<Pair::rows>(block, vectors - 1);
      if (blocks % 2 == 1) next<Pair::none>(blocks - 1, vectors - 1);
    }
    if (!pending) return;
    if (set == 1)
      store_set<0>(pending, pending_second, stride);
    else
      store_set<1>(pending, pending_second, stride);
  }
};

template <bool kAccumulate>
static void amx_gemm(AmxOperandA a, int blocks, const float* b, int vectors, int steps, float* c) {
  compiler_barrier();
  AmxGemm<kAccumulate>{a, (const char*)b, vectors * 64, steps, (char*)c}.run(blocks, vectors);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
