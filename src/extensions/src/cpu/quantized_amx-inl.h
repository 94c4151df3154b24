// Many rows times quantized weights on AMX tiles: x, packed tile by tile so that loads run through memory, is
// the A operand, widened pairs of weights the B operand.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/quantized_pairs-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxMany : PairsMany {
  static constexpr int kTileRows = 16;
  static constexpr int kTileSteps = 16;
  static constexpr int kTile = kTileRows * kTileSteps;                // floats
  static constexpr int64_t kRowBytes = kManyOutputs * sizeof(float);  // of weights and of sums

  VEC_FN void enter() {
    TileConfig config;
    _tile_loadconfig(&config);
  }
  VEC_FN void leave() { _tile_release(); }

  // Two tiles of rows are multiplied at a time; rows that do not exist are zero.
  static int64_t padded(int64_t rows) {
    return (rows + 2 * kTileRows - 1) / (2 * kTileRows) * (2 * kTileRows);
  }

  template <Element kElement>
  static size_t packed_bytes(const QuantizedTask& task) {
    return padded(task.rows) * task.groups * task.group * sizeof(uint16_t);
  }

  // [block of kTileRows rows][block of kTileSteps steps][row][step].
  template <Element kElement>
  static void pack(const QuantizedTask& task, void* packed) {
    constexpr size_t kPart = kTileSteps * sizeof(float);
    const int64_t parts = task.groups * task.group / (2 * kTileSteps);
    for (int64_t m = 0; m < padded(task.rows); m++) {
      float* out = (float*)packed + m / kTileRows * parts * kTile + m % kTileRows * kTileSteps;
      auto* x = (const char*)((const uint16_t*)task.x + m * task.x_row_stride);
      for (int64_t part = 0; part < parts; part++, out += kTile, x += kPart) {
        if (m < task.rows)
          memcpy(out, x, kPart);
        else
          memset(out, 0, kPart);
      }
    }
  }

  static void multiply(ManyX x, int64_t first, int rows, const float* w, int steps, float* c) {
    for (int64_t row = 0; row < rows; row += 2 * kTileRows)
      multiply_rows(x.data + row * x.stride + first * kTileRows, x.stride * kTileRows, w, steps,
                    c + row * kManyOutputs);
  }

 private:
  // Two tiles of rows times two of outputs at a time: a tile that is loaded is multiplied twice.
  static void multiply_rows(const float* x, int64_t lower_x, const float* w, int steps, float* c) {
    for (int n = 0; n < kManyOutputs; n += 2 * kLanes) {
      float *upper = c + n, *lower = upper + kTileRows * kManyOutputs;
      _tile_loadd(0, upper, kRowBytes);
      _tile_loadd(1, upper + kLanes, kRowBytes);
      _tile_loadd(2, lower, kRowBytes);
      _tile_loadd(3, lower + kLanes, kRowBytes);
      for (int step = 0; step < steps; step += kTileSteps) {
        const float* pairs = w + step * kManyOutputs + n;
        _tile_loadd(4, x + step * kTileRows, kTileSteps * sizeof(float));
        _tile_loadd(5, x + step * kTileRows + lower_x, kTileSteps * sizeof(float));
        _tile_loadd(6, pairs, kRowBytes);
        _tile_loadd(7, pairs + kLanes, kRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, upper, kRowBytes);
      _tile_stored(1, upper + kLanes, kRowBytes);
      _tile_stored(2, lower, kRowBytes);
      _tile_stored(3, lower + kLanes, kRowBytes);
    }
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
