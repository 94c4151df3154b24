// Tile codecs: rows of packed weights decode into rows of the A operand of AMX tiles, as int8 (kInt8) or
// bfloat16, exactly: (q - kZeroPoint) * kStep.
//
// A quantization group is kSteps steps along K of kStepQuants quants each. `decode` writes row `row` of
// kStepsAtOnce steps. The codec permutes quants within those steps: element i of a step is quant
// source_quant(step, i). With kSplitX x may be split bf16.
#pragma once

#include "cpu/quantized/codec/bf16_group-inl.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kBf16Step = 2 * kLanes;  // elements along K in a product of bfloat16 tiles

// For x of bfloat16.
template <int kBits, int kSteps>
struct Bf16TileCodec;

// The bytes of the steps are repeated until they fill a vector; each copy rotates another nibble of each 16
// bits into the upper bits of the mantissa of 4.0, where it counts quarters: 4 to 7.75. That takes no table,
// and sums are no larger than with -8 to 7.
template <int kSteps_>
struct Bf16TileCodec<4, kSteps_> {
  static constexpr int kBits = 4, kSteps = kSteps_, kStepQuants = kBf16Step;
  static constexpr bool kInt8 = false, kSplitX = false;
  static constexpr int kStepsAtOnce = kSteps < 2 ? 1 : 2;
  static constexpr int kCopies = 4 / kStepsAtOnce, kCopyQuants = kBf16Step / kCopies;
  static constexpr float kZeroPoint = -16, kStep = 0.25f;

  static constexpr int nibble(int step, int copy) { return step * kCopies + copy; }
  static constexpr int source_quant(int step, int i) {
    return i % kCopyQuants * 4 + nibble(step, i / kCopyQuants);
  }

  VEC_FN void decode(const uint8_t* p, uint8_t (*to)[kLanes][64], int row) {
    const __m512i mantissa = _mm512_set1_epi16(0x0078), four = _mm512_set1_epi16(0x4080);
    constexpr int kFirstAndSecondOrThird = 0xea;
    __m512i copies;
    if constexpr (kStepsAtOnce == 1)
      copies = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p));
    else
      copies = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)p));
#pragma GCC unroll 2
    for (int step = 0; step < kStepsAtOnce; step++) {
      const __m512i rotated = _mm512_rorv_epi32(copies, to_mantissa(step));
      _mm512_store_si512(to[step][row],
                         _mm512_ternarylogic_epi32(rotated, mantissa, four, kFirstAndSecondOrThird));
    }
  }

 private:
  VEC_FN __m512i to_mantissa(int step) {
    alignas(64) int32_t bits[kLanes];
    for (int i = 0; i < kLanes; i++) bits[i] = (4 * nibble(step, i * kCopies / kLanes) - 3) & 31;
    return _mm512_load_si512(bits);
  }
};

template <int kSteps_>
struct Bf16TileCodec<8, kSteps_> {
  static constexpr int kBits = 8, kSteps = kSteps_, kStepQuants = kBf16Step;
  static constexpr bool kInt8 = false, kSplitX = false;
  static constexpr int kStepsAtOnce = 1;
  static constexpr float kZeroPoint = 128, kStep = 1;

  static constexpr int source_quant(int, int i) { return i; }

  VEC_FN void decode(const uint8_t* p, uint8_t (*to)[kLanes][64], int row) {
    const F first = _mm512_cvtepi32_ps(Bf16GroupCodec<8>::centred(p));
    const F second = _mm512_cvtepi32_ps(Bf16GroupCodec<8>::centred(p + kLanes));
    _mm512_store_si512(to[0][row], (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
};

// For x as split bf16: q minus half its range, so that a weight in the middle of its range is exactly 0, as
// float32 results need.
template <int kBits, int kSteps>
struct CentredBf16TileCodec : Bf16TileCodec<kBits, kSteps> {
  static constexpr bool kSplitX = true;
};

// Both bytes of 16 bits hold the nibble of their quant. Each looks up its own byte of the bfloat16, the high
// byte in the second quarter of the table.
template <int kSteps_>
struct CentredBf16TileCodec<4, kSteps_> {
  static constexpr int kBits = 4, kSteps = kSteps_, kStepQuants = kBf16Step;
  static constexpr bool kInt8 = false, kSplitX = true;
  static constexpr int kStepsAtOnce = kSteps < 2 ? 1 : 2;
  static constexpr float kZeroPoint = 8, kStep = 1;

  static constexpr int source_quant(int step, int i) {
    return kStepsAtOnce == 2 ? 2 * i + step : i % kLanes * 2 + i / kLanes;
  }

  VEC_FN void decode(const uint8_t* p, uint8_t (*to)[kLanes][64], int row) {
    const __m512i low = repeated(p), high = _mm512_srli_epi16(low, 4);
    if constexpr (kStepsAtOnce == 2) {
      _mm512_store_si512(to[0][row], look_up(low));
      _mm512_store_si512(to[1][row], look_up(high));
    } else {
      _mm512_store_si512(to[0][row], look_up(_mm512_mask_mov_epi16(low, 0xffff0000, high)));
    }
  }

 private:
  // Each byte twice in succession; the bytes of a single step then once more.
  VEC_FN __m512i repeated(const uint8_t* p) {
    alignas(64) uint8_t from[64];
    for (int i = 0; i < 64; i++) from[i] = (uint8_t)(i / 2 % (kLanes * kStepsAtOnce));
    __m512i bytes;
    if constexpr (kStepsAtOnce == 2)
      bytes = _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i*)p));
    else
      bytes = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i*)p));
    return _mm512_permutexvar_epi8(_mm512_load_si512(from), bytes);
  }

  VEC_FN __m512i look_up(__m512i nibbles) {
    alignas(64) uint8_t table[64] = {};
    for (int q = 0; q < 16; q++) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, (float)q - kZeroPoint);
      table[q] = (uint8_t)(bits >> 16);
      table[16 + q] = (uint8_t)(bits >> 24);
    }
    constexpr int kFirstAndSecondOrThird = 0xea;
    const __m512i index = _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi16(0x0f0f),
                                                    _mm512_set1_epi16(0x1000), kFirstAndSecondOrThird);
    return _mm512_permutexvar_epi8(index, _mm512_load_si512(table));
  }
};

// int8: q minus half its range. For x as int8 digits.
template <int kBits_, int kGroup>
struct Int8TileCodec {
  static constexpr int kBits = kBits_, kSteps = kGroup < 128 ? 1 : 2, kStepQuants = kGroup / kSteps;
  static constexpr int kStepsAtOnce = 1;
  static constexpr bool kInt8 = true, kSplitX = false;
  static constexpr float kZeroPoint = 1 << (kBits - 1);

  // 4 bits: the low nibbles of all bytes, then the high ones.
  static constexpr int source_quant(int i) {
    return kBits == 8 ? i : i < kStepQuants / 2 ? 2 * i : 2 * (i - kStepQuants / 2) + 1;
  }

  VEC_FN void decode(const uint8_t* p, uint8_t (*to)[kLanes][64], int row) {
    if constexpr (kStepQuants == 64)
      _mm512_store_si512(to[0][row], decoded(p));
    else
      _mm256_store_si256((__m256i*)to[0][row], _mm512_castsi512_si256(decoded(p)));
  }

 private:
  VEC_FN __m512i decoded(const uint8_t* p) {
    if constexpr (kBits == 8) {
      const __m512i half = _mm512_set1_epi8((char)0x80);
      if constexpr (kStepQuants == 64) return _mm512_xor_si512(_mm512_loadu_si512(p), half);
      return _mm512_xor_si512(_mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i*)p)), half);
    } else if constexpr (kStepQuants == 64) {
      const __m512i bytes = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)p));
      const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
      return look_up(_mm512_srlv_epi32(bytes, shifts));
    } else {
      const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p));
      const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
      return look_up(_mm512_srlv_epi32(bytes, shifts));
    }
  }

  // A look-up takes six bits, of which the upper two belong to a neighbour: the table repeats.
  VEC_FN __m512i look_up(__m512i nibbles) {
    alignas(64) int8_t table[64];
    for (int i = 0; i < 64; i++) table[i] = (int8_t)(i % 16 - 8);
    return _mm512_permutexvar_epi8(nibbles, _mm512_load_si512(table));
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
