// Products of the backward passes on AMX tiles. The streamed rows are the A operand: row by row for S and dP,
// transposed for the gradients; packed operands, P and dS are pairs, the layout of the B operand.
#pragma once

#include "cpu/attention/amx_operands-inl.h"
#include "cpu/attention/backward/bf16_products-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

struct AmxProducts : WithTiles {
  static constexpr Element kElement = Element::bf16;
  static constexpr int kStreamRows = 128;
  static constexpr int kLaneTilesPerTask = 4;

  static constexpr int blocks(int n) { return AmxOperands::blocks(n); }
  static constexpr int wide_steps(int n) { return AmxOperands::wide_steps(n); }
  static constexpr int steps(int E) { return AmxOperands::steps(E); }
  static constexpr int output_rows(int E) { return AmxOperands::output_rows(E); }
  static constexpr size_t prepared_floats(int E) {
    return kStreamRows * steps(E) + kStreamRows / 2 * output_rows(E);
  }

  VEC_FN F read(const uint16_t* row, int unit, int E) { return Bf16Products::read(row, unit, E); }

  // 0 after the last row and the last element: products take whole tiles.
  template <class Row>
  static StreamedRows prepare(int count, int E, bool along_rows, Row row, float* memory) {
    const int width = steps(E), transposed_width = kStreamRows / 2;
    float* transposed = memory + kStreamRows * width;
    for (int j = 0; j < 16 * blocks(count); j++) {
      const uint16_t* from = j < count ? row(j) : (const uint16_t*)kZeroRow;
      for (int unit = 0; unit < width; unit += kLanes) store(memory + j * width + unit, read(from, unit, E));
    }
    for (int j = 0; along_rows && j < count; j += 2 * kLanes)
      for (int e = 0; e < E; e += kLanes) {
        F block[kLanes];
        for (int pair = 0; pair < kLanes; pair++) {
          const int low = j + 2 * pair;
          block[pair] = low < count
                            ? zip_pairs(row(low) + e, low + 1 < count ? row(low + 1) + e : nullptr, E - e)
                            : zero();
        }
        transpose(block);
        for (int i = 0; i < kLanes; i++) store(transposed + (e + i) * transposed_width + j / 2, block[i]);
      }
    return {memory, transposed, width * 4, transposed_width * 4};
  }

  static void multiply_along_E(const StreamedRows& rows, int count, const float* operand, int vectors, int E,
                               float* out) {
    amx_gemm<false>({rows.along_E, rows.along_E_stride}, blocks(count), operand, vectors, wide_steps(E), out);
  }

  static void multiply_along_rows(const StreamedRows& rows, int count, const float* factors, int vectors,
                                  int E, float* sums) {
    amx_gemm<true>({rows.along_rows, rows.along_rows_stride}, blocks(E), factors, vectors, wide_steps(count),
                   sums);
  }

  VEC_FN void store_factors(float* factors, int lanes, int m, F low, F high) {
    Bf16Products::store_factors(factors, lanes, m, low, high);
  }
  VEC_FN void end_factors(float* factors, int lanes, int count) {
    for (int pair = (count + 1) / 2; pair < 16 * wide_steps(count); pair++)
      store(factors + pair * lanes, zero());
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
