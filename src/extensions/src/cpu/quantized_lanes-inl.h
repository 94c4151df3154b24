// Both operands of AMX products of bfloat16 for few rows times quantized weights: the numbers of the weights
// as bfloat16, and x in the order that they have.
#pragma once

#include "cpu/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kStep = 2 * kLanes;  // numbers along K that a product of tiles adds up

// How the numbers of a group of kSteps steps become bfloat16: `write` gives (number + kAdded) / kUnit of
// kTogether steps at p, a row of a tile each, in an order of its own: place i of a step has the number
// `number(step, i)` of them.
template <int kBits, int kSteps>
struct NumbersOfTiles;

// The bytes of those steps are repeated until they fill a vector, and each copy takes another half byte of
// each 16 bits. In the upper bits of the mantissa of 4 it counts quarters: 4 to 7.75, which takes no table
// and adds up to no more than numbers from -8 to 7.
template <int kSteps_>
struct NumbersOfTiles<4, kSteps_> {
  static constexpr int kBits = 4, kSteps = kSteps_;
  static constexpr int kTogether = kSteps < 2 ? 1 : 2;
  static constexpr int kCopies = 4 / kTogether, kCopyNumbers = kStep / kCopies;
  static constexpr float kAdded = 16, kUnit = 4;

  static constexpr int half_byte(int step, int copy) { return step * kCopies + copy; }
  static constexpr int number(int step, int i) {
    return i % kCopyNumbers * 4 + half_byte(step, i / kCopyNumbers);
  }

  VEC_FN void write(const uint8_t* p, uint16_t (*to)[kLanes][kStep], int row) {
    const __m512i mantissa = _mm512_set1_epi16(0x0078), four = _mm512_set1_epi16(0x4080);
    constexpr int kFirstAndSecondOrThird = 0xea;
    __m512i copies;
    if constexpr (kTogether == 1)
      copies = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p));
    else
      copies = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)p));
#pragma GCC unroll 2
    for (int step = 0; step < kTogether; step++) {
      const __m512i turned = _mm512_rorv_epi32(copies, to_mantissa(step));
      _mm512_store_si512(to[step][row],
                         _mm512_ternarylogic_epi32(turned, mantissa, four, kFirstAndSecondOrThird));
    }
  }

 private:
  VEC_FN __m512i to_mantissa(int step) {
    alignas(64) int32_t turns[kLanes];
    for (int i = 0; i < kLanes; i++) turns[i] = (4 * half_byte(step, i * kCopies / kLanes) - 3) & 31;
    return _mm512_load_si512(turns);
  }
};

template <int kSteps_>
struct NumbersOfTiles<8, kSteps_> {
  static constexpr int kBits = 8, kSteps = kSteps_;
  static constexpr int kTogether = 1;
  static constexpr float kAdded = -128, kUnit = 1;

  static constexpr int number(int, int i) { return i; }

  VEC_FN void write(const uint8_t* p, uint16_t (*to)[kLanes][kStep], int row) {
    const F first = _mm512_cvtepi32_ps(GroupOfPairs<8>::numbers(p));
    const F second = _mm512_cvtepi32_ps(GroupOfPairs<8>::numbers(p + kLanes));
    _mm512_store_si512(to[0][row], (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
};

// x of a call: [step][tile][pair of numbers][lane], and behind it the sums over groups in float32,
// [group][tile][kLanes]. A lane is a row; those behind the last are zero. Few enough rows have half as many
// lanes: less of x passes through the caches.
struct LaneRows {
  int64_t steps, groups, tiles, lanes;

  explicit LaneRows(const QuantizedTask& task)
      : steps(task.groups * task.group / kStep),
        groups(task.groups),
        tiles((task.rows + kLanes - 1) / kLanes),
        lanes(task.rows <= kLanes / 2 ? kLanes / 2 : kLanes) {}

  int64_t tile_floats() const { return kLanes * lanes; }
  int64_t sums() const { return steps * tiles * tile_floats(); }
  size_t floats() const { return sums() + groups * tiles * kLanes; }
};

// The numbers of a step as `Numbers` has those of the weights; x are those of the steps that it has together.
template <class Numbers>
VEC_FN F in_order(const uint16_t* x, int step) {
  alignas(64) uint16_t from[kStep];
  for (int i = 0; i < kStep; i++) from[i] = (uint16_t)Numbers::number(step, i);
  const __m512i first = _mm512_loadu_si512(x);
  const __m512i second = _mm512_loadu_si512(x + (Numbers::kTogether - 1) * kStep);
  return _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, _mm512_load_si512(from), second));
}

template <class Numbers>
static void pack_lanes(const QuantizedTask& task, float* packed) {
  const LaneRows layout(task);
  const int64_t group_steps = task.group / kStep;
  float* const sums = packed + layout.sums();
  memset(sums, 0, layout.groups * layout.tiles * kLanes * sizeof(float));
  for (int64_t step = 0; step < layout.steps; step++)
    for (int64_t tile = 0; tile < layout.tiles; tile++) {
      F block[kLanes];
      for (int64_t lane = 0; lane < kLanes; lane++) {
        const int64_t m = tile * kLanes + lane;
        block[lane] = zero();
        if (m >= task.rows) continue;
        auto* x = (const uint16_t*)task.x + m * task.x_row_stride + step * kStep;
        const int at = (int)(step % Numbers::kTogether);
        block[lane] = in_order<Numbers>(x - at * kStep, at);
        const F first = as_multiplied_in_pairs(load_bf16(x));
        const F second = as_multiplied_in_pairs(load_bf16(x + kLanes));
        sums[(step / group_steps * layout.tiles + tile) * kLanes + lane] +=
            _mm512_reduce_add_ps(add(first, second));
      }
      transpose(block);
      const __mmask16 lanes = (__mmask16)((1 << layout.lanes) - 1);
      for (int pair = 0; pair < kLanes; pair++, packed += layout.lanes)
        _mm512_mask_storeu_ps(packed, lanes, block[pair]);
    }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
