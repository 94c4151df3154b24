// Operands of AMX tile products in bfloat16: 16 x 16 results from 16 x 32 elements of A and 32 x 16 of B.
//
// K is the A operand in place; packed queries and probabilities are pairs, the layout of the B operand. Only
// V is transposed, once a key tile for all query tiles of a task.
#pragma once

#include "cpu/attention/bf16_operands-inl.h"
#include "cpu/attention/gemm_amx-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxOperands : WithTiles {
  static constexpr Element kElement = Element::bf16;
  static constexpr bool kBf16Products = true;
  static constexpr int kKeyTile = 128;
  static constexpr int kQueryTilesPerTask = 8;
  static constexpr bool kSharesLanes = false;
  static constexpr bool kReadsAddresses = false;

  static constexpr int blocks(int n) { return (n + 15) / 16; }
  static constexpr int wide_steps(int n) { return (n + 31) / 32; }
  static constexpr int steps(int E) { return 16 * wide_steps(E); }
  static constexpr int output_rows(int E) { return 16 * blocks(E); }
  static constexpr size_t prepared_floats(int E) {
    return kKeyTile / 2 * output_rows(E) + kKeyTile * steps(E);
  }

  static double peak(int64_t steps) {
    enter();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(6);
    for (int64_t step = 0; step < steps; step++) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 6);
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 6);
    }
    leave();
    return (double)steps * 4 * 16 * 16 * 32 * 2;
  }

  VEC_FN F read_query(const ForwardTask& task, int64_t offset, int unit) {
    return Bf16Operands::read_query(task, offset, unit);
  }

  // V transposed to [E][keys], 0 after the last key; K in place, or padded to whole tiles.
  static void prepare(const ForwardTask& task, KeyRows from, KeyTile& tile, float* memory) {
    const uint16_t* k = (const uint16_t*)from.k.data;
    const uint16_t* v = (const uint16_t*)from.v.data;
    const int row = kKeyTile / 2;
    for (int key = 0; key < tile.keys; key += 32)
      for (int e = 0; e < task.E; e += 16) {
        F block[16];
        for (int pair = 0; pair < 16; pair++) {
          int low = key + 2 * pair;
          const uint16_t* p = v + low * from.v.stride + e;
          block[pair] = low < tile.keys
                            ? zip_pairs(p, low + 1 < tile.keys ? p + from.v.stride : nullptr, task.E - e)
                            : zero();
        }
        transpose(block);
        for (int j = 0; j < 16; j++) store(memory + (e + j) * row + key / 2, block[j]);
      }
    tile.v = {memory, row * 4};
    tile.k = {k, from.k.stride * 2};
    if (task.E % 32 == 0 && tile.keys % 16 == 0) return;
    memory += row * output_rows(task.E);
    for (int key = 0; key < 16 * blocks(tile.keys); key++)
      for (int unit = 0; unit < steps(task.E); unit += 16)
        store(memory + key * steps(task.E) + unit,
              key < tile.keys ? load_pairs(k + key * from.k.stride + 2 * unit, task.E - 2 * unit) : zero());
    tile.k = {memory, steps(task.E) * 4};
  }

  static void scores(const QueryTile& tile, const KeyTile& keys, int count, int E, float* s) {
    amx_gemm<false>({keys.k.data, keys.k.stride}, blocks(count), tile.q, tile.vectors, wide_steps(E), s);
  }

  // 0 after the last key: the second product reduces over whole steps of 32 keys.
  VEC_FN F exponentials(float* s, int stride, int keys, Exponent exponent) {
    F sum = Bf16Operands::exponentials(s, stride, keys, exponent);
    for (int pair = (keys + 1) / 2; pair < 16 * wide_steps(keys); pair++) store(s + pair * stride, zero());
    return sum;
  }

  static void values(QueryTile& tile, const KeyTile& keys, int count, int E, const float* p) {
    amx_gemm<true>({keys.v.data, keys.v.stride}, blocks(E), p, tile.vectors, wide_steps(count), tile.o);
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
