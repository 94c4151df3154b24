// Packs rows of x as the B operand of bfloat16 AMX products, permuted as the tile codec permutes quants.
// float32 and float16 are split bf16 (cpu/gemm/split_bf16-inl.h).
#pragma once

#include <math.h>

#include "cpu/gemm/split_bf16-inl.h"
#include "cpu/interface/quantized_kernels.h"
#include "cpu/quantized/codec/amx-inl.h"
#include "cpu/quantized/max_magnitude-inl.h"
#include "cpu/quantized/outliers-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kMaxRowTiles = 2;

// Packed x: [step][part][tile][pair of elements][lane], then float32 sums over quantization groups,
// [group][tile][kLanes], then one scale and one exponent for each row. A lane is a row; lanes beyond the last
// row are zero. Up to kLanes / 2 rows take half as many lanes, so that less of x passes through the caches;
// their sums are stored twice.
struct Bf16Packing {
  int64_t rows, parts, steps, groups, tiles, lanes;

  Bf16Packing(const QuantizedTask& task, int parts)
      : rows(task.rows),
        parts(parts),
        steps(task.num_groups * task.group_size / kBf16Step),
        groups(task.num_groups),
        tiles((rows + kLanes - 1) / kLanes),
        lanes(rows <= kLanes / 2 ? kLanes / 2 : kLanes) {}

  int64_t tile_floats() const { return kLanes * lanes; }
  int64_t step_floats() const { return parts * tiles * tile_floats(); }
  int64_t sums() const { return steps * step_floats(); }
  int64_t row_scales() const { return sums() + groups * tiles * kLanes; }
  int64_t row_exponents() const { return row_scales() + rows; }
  size_t floats() const { return row_exponents() + rows; }
};

// Elements of x in units of 2^exponent; bfloat16 without denormals, as products use it.
template <Element kElement>
VEC_FN F to_units(F x, F exponent) {
  if constexpr (kElement == Element::bf16) return as_multiplied_in_pairs(x);
  return _mm512_scalef_ps(x, sub(zero(), exponent));
}

// Splits 2 * kLanes elements of x, in units of 2^exponent: next() gives one part after the other.
template <Element kElement>
struct PartsOfX {
  Bf16Parts parts;

  VEC_FN PartsOfX of(const StorageOf<kElement>* x, F exponent) {
    return {Bf16Parts::of(to_units<kElement>(load_as<kElement>(x), exponent),
                          to_units<kElement>(load_as<kElement>(x + kLanes), exponent))};
  }
  VEC_FN __m512i next(PartsOfX& x) { return Bf16Parts::next(x.parts); }
};

template <>
struct PartsOfX<Element::bf16> {
  __m512i only;

  VEC_FN PartsOfX of(const uint16_t* x, F) { return {_mm512_loadu_si512(x)}; }
  VEC_FN __m512i next(PartsOfX& x) { return x.only; }
};

// The elements of `step` in the order of the codec, from those of the first and the last of kStepsAtOnce
// steps.
template <class Codec>
VEC_FN F in_codec_order(__m512i first, __m512i last, int step) {
  alignas(64) uint16_t from[kBf16Step];
  for (int i = 0; i < kBf16Step; i++) from[i] = (uint16_t)Codec::source_quant(step, i);
  return _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, _mm512_load_si512(from), last));
}

// Exponent of the largest |x| of a row. float32 rows and rows of int8 digits are divided by 2^exponent before
// splitting: else parts of small rows would be denormal (AMX flushes them) and sums of large rows infinite.
// row_scales() multiply the results by it.
template <Element kElement>
static int row_exponent(const StorageOf<kElement>* x, int64_t K) {
  return (int)(max_magnitude_bits<kElement>(x, K) >> 23) - 127;
}

// The lanes of a tile for Codec::kStepsAtOnce steps, from `step` on.
template <class Codec, Element kElement>
static void pack_tile(const TaskWithOutliers& task, const Bf16Packing& layout, int64_t step, int64_t tile,
                      float* packed) {
  typedef PartsOfX<kElement> Parts;
  constexpr int kStepsAtOnce = Codec::kStepsAtOnce;
  F block[kSplitParts<kElement>][kStepsAtOnce][kLanes];
  for (int64_t lane = 0; lane < kLanes; lane++) {
    const int64_t m = tile * kLanes + lane;
    if (m >= task.rows) {
      for (auto& part : block)
        for (auto& lanes : part) lanes[lane] = zero();
      continue;
    }
    auto* x = task.row_to_pack<kElement>(m) + step * kBf16Step;
    const F exponent = set1(packed[layout.row_exponents() + m]);
    Parts first = Parts::of(x, exponent), last = Parts::of(x + (kStepsAtOnce - 1) * kBf16Step, exponent);
    for (auto& part : block) {
      const __m512i of_first = Parts::next(first), of_last = Parts::next(last);
      for (int at = 0; at < kStepsAtOnce; at++) part[at][lane] = in_codec_order<Codec>(of_first, of_last, at);
    }
  }
  const __mmask16 lanes = (__mmask16)((1 << layout.lanes) - 1);
  for (int part = 0; part < kSplitParts<kElement>; part++)
    for (int at = 0; at < kStepsAtOnce; at++) {
      transpose(block[part][at]);
      float* out =
          packed + (step + at) * layout.step_floats() + (part * layout.tiles + tile) * layout.tile_floats();
      for (int pair = 0; pair < kLanes; pair++)
        _mm512_mask_storeu_ps(out + pair * layout.lanes, lanes, block[part][at][pair]);
    }
}

// The scale of row m and its exponent, which bfloat16 and float16 do not need.
template <class Codec, Element kElement>
static void prepare_bf16_row(const TaskWithOutliers& task, const Bf16Packing& layout, float* packed,
                             int64_t m) {
  const int exponent =
      kElement == Element::f32 ? row_exponent<kElement>(task.row_to_pack<kElement>(m), task.K()) : 0;
  packed[layout.row_scales() + m] = ldexpf(1 / Codec::kStep, exponent);
  packed[layout.row_exponents() + m] = (float)exponent;
}

// Packs the quantization groups from `begin` to `end` of all rows.
template <class Codec, Element kElement>
static void pack_bf16_lanes(const TaskWithOutliers& task, const Bf16Packing& layout, float* packed,
                            int64_t begin, int64_t end) {
  const int64_t sums_of_group = layout.tiles * kLanes;
  float* const sums = packed + layout.sums();
  memset(sums + begin * sums_of_group, 0, (end - begin) * sums_of_group * sizeof(float));
  for (int64_t m = 0; m < task.rows; m++) {
    auto* x = task.row_to_pack<kElement>(m) + begin * task.group_size;
    const F exponent = set1(packed[layout.row_exponents() + m]);
    for (int64_t g = begin; g < end; g++, x += task.group_size) {
      F sum = zero();
      for (int e = 0; e < task.group_size; e += kLanes)
        sum = add(sum, to_units<kElement>(load_as<kElement>(x + e), exponent));
      float* group_sums = sums + g * sums_of_group;
      group_sums[m] = _mm512_reduce_add_ps(sum) * Codec::kStep;
      if (layout.lanes < kLanes) group_sums[layout.lanes + m] = group_sums[m];
    }
  }
  const int64_t steps_of_group = task.group_size / kBf16Step;
  for (int64_t step = begin * steps_of_group; step < end * steps_of_group; step += Codec::kStepsAtOnce)
    for (int64_t tile = 0; tile < layout.tiles; tile++)
      pack_tile<Codec, kElement>(task, layout, step, tile, packed);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
