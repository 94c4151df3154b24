// AMX tile registers, and the microkernel of attention on them.
#pragma once

#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// Microkernels reload few of the eight registers. Products that alternate with loads took 7 ns each, but at
// times 14 with four registers, 18 with six and 32 with eight (benches/LOG.md).
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Compilers do not know that tile instructions read memory: no store may move across this.
VEC_FN void compiler_barrier() { __asm__ volatile("" ::: "memory"); }

VEC_FN void load_config(const TileConfig& config) {
  __asm__ volatile("" : : "r"(&config) : "memory");  // GCC believes that only eight bytes are read
  _tile_loadconfig(&config);
}

// enter() and leave() of an arithmetic on whole tiles.
struct WithTiles {
  VEC_FN void enter() { load_config(TileConfig()); }
  VEC_FN void leave() { _tile_release(); }
};

// Two neighbouring tiles of C are computed at a time: two columns of one row block, two rows of one column
// block, or a single tile where there is no neighbour.
enum class Pair { columns, rows, none };

// C's tile registers come in two sets, 0-1 and 2-3: a set is stored only after the next one's products have
// been issued, so that the latencies of the last products, of the stores and of the first loads overlap.
template <int kSet>
VEC_FN void zero_set() {
  if constexpr (kSet == 0) {
    _tile_zero(0);
    _tile_zero(1);
  } else {
    _tile_zero(2);
    _tile_zero(3);
  }
}

// The second tile lies `second` bytes after the first; 0: there is none.
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

template <int kSet>
VEC_FN void store_set(char* c, int64_t second, int64_t stride) {
  if constexpr (kSet == 0) {
    _tile_stored(0, c, stride);
    if (second) _tile_stored(1, c + second, stride);
  } else {
    _tile_stored(2, c, stride);
    if (second) _tile_stored(3, c + second, stride);
  }
}

// The sums in a tile += tile 4 * tile 5, of bfloat16 or int8.
template <int kSums, bool kInt8 = false>
VEC_FN void add_product() {
  static_assert(kSums < 4);
  if constexpr (kInt8) {
    if constexpr (kSums == 0) _tile_dpbssd(0, 4, 5);
    if constexpr (kSums == 1) _tile_dpbssd(1, 4, 5);
    if constexpr (kSums == 2) _tile_dpbssd(2, 4, 5);
    if constexpr (kSums == 3) _tile_dpbssd(3, 4, 5);
  } else {
    if constexpr (kSums == 0) _tile_dpbf16ps(0, 4, 5);
    if constexpr (kSums == 1) _tile_dpbf16ps(1, 4, 5);
    if constexpr (kSums == 2) _tile_dpbf16ps(2, 4, 5);
    if constexpr (kSums == 3) _tile_dpbf16ps(3, 4, 5);
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
