// AMX tile registers: their configuration, and the steps of products on them.
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

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
