// AMX tile registers in plain C++, for processors without them: included before the kernels of `amx`, whose
// tile instructions become calls of these functions. Sanitizers then see what tiles read and write. Stores
// that a compiler moves past a tile instruction are not seen: only AMX itself shows them.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

namespace tiny_llm_ext::tests::tiles {

struct Config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

struct Tile {
  alignas(64) uint8_t bytes[16][64];
};

inline thread_local Config config = {};
inline thread_local Tile tile[8];

inline void require(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "emulated tiles: %s\n", what);
  abort();
}

inline void release() {
  config = {};
  memset(tile, 0, sizeof tile);
}

inline void load_config(const void* memory) {
  release();
  memcpy(&config, memory, sizeof config);
  require(config.palette == 1 && config.start_row == 0, "configuration");
  for (int t = 0; t < 8; t++) require(config.rows[t] <= 16 && config.row_bytes[t] <= 64, "size of a tile");
}

inline void require_tile(int t) {
  require(config.palette == 1 && config.rows[t] > 0 && config.row_bytes[t] > 0,
          "a tile that is not configured");
}

// As on the processor: rows and bytes beyond those of the configuration become zero.
inline void zero(int t) {
  require_tile(t);
  memset(&tile[t], 0, sizeof tile[t]);
}

inline void load(int t, const void* memory, int64_t stride) {
  zero(t);
  for (int row = 0; row < config.rows[t]; row++)
    memcpy(tile[t].bytes[row], (const char*)memory + row * stride, config.row_bytes[t]);
}

inline void store(int t, void* memory, int64_t stride) {
  require_tile(t);
  for (int row = 0; row < config.rows[t]; row++)
    memcpy((char*)memory + row * stride, tile[t].bytes[row], config.row_bytes[t]);
}

// As on the processor, denormals are zero, as operands and as results.
inline float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? 0 : x; }

inline float number(const Tile& t, int row, int column) {
  uint16_t half;
  memcpy(&half, t.bytes[row] + 2 * column, sizeof half);
  return flushed(__builtin_bit_cast(float, (uint32_t)half << 16));
}

inline void require_sizes(int c, int a, int b) {
  for (int t : {c, a, b}) require_tile(t);
  require(config.rows[c] == config.rows[a] && config.row_bytes[a] == 4 * config.rows[b] &&
              config.row_bytes[c] == config.row_bytes[b],
          "sizes of a product");
}

// The even numbers of a row of A are summed first, then the odd ones; both sums are added to C at the end.
inline void multiply_bf16(int c, int a, int b) {
  require_sizes(c, a, b);
  for (int row = 0; row < config.rows[c]; row++)
    for (int column = 0; column < config.row_bytes[c] / 4; column++) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < config.rows[b]; k++) {
        even = flushed(__builtin_fmaf(number(tile[a], row, 2 * k), number(tile[b], k, 2 * column), even));
        odd =
            flushed(__builtin_fmaf(number(tile[a], row, 2 * k + 1), number(tile[b], k, 2 * column + 1), odd));
      }
      memcpy(&sum, tile[c].bytes[row] + 4 * column, sizeof sum);
      sum = flushed(flushed(sum) + flushed(even + odd));
      memcpy(tile[c].bytes[row] + 4 * column, &sum, sizeof sum);
    }
}

inline void multiply_int8(int c, int a, int b) {
  require_sizes(c, a, b);
  for (int row = 0; row < config.rows[c]; row++)
    for (int column = 0; column < config.row_bytes[c] / 4; column++) {
      int32_t sum;
      memcpy(&sum, tile[c].bytes[row] + 4 * column, sizeof sum);
      for (int k = 0; k < config.row_bytes[a]; k++)
        sum += (int8_t)tile[a].bytes[row][k] * (int8_t)tile[b].bytes[k / 4][4 * column + k % 4];
      memcpy(tile[c].bytes[row] + 4 * column, &sum, sizeof sum);
    }
}

}  // namespace tiny_llm_ext::tests::tiles

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig tiny_llm_ext::tests::tiles::load_config
#define _tile_release tiny_llm_ext::tests::tiles::release
#define _tile_zero tiny_llm_ext::tests::tiles::zero
#define _tile_loadd tiny_llm_ext::tests::tiles::load
#define _tile_stored tiny_llm_ext::tests::tiles::store
#define _tile_dpbf16ps tiny_llm_ext::tests::tiles::multiply_bf16
#define _tile_dpbssd tiny_llm_ext::tests::tiles::multiply_int8
