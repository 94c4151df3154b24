// Few rows of bfloat16 times quantized weights on AMX tiles. Weights are read as numbers that bfloat16 holds
// exactly; scales and biases, in float32, come to what a group of them adds up to.
//
// Rows of weights are the A operand, as they lie in memory, and a row of x is a lane of the B operand. The
// three steps of a group (weights to bfloat16, products, sums times scales) run one group apart, and sums are
// stored after the products of the next, so that what is read has been stored well before. More than a group
// at a time, or the steps in smaller pieces, is slower (benches/LOG.md). Every lane adds up by itself, so the
// bits of a row do not depend on other rows.
#pragma once

#include "cpu/amx_tiles-inl.h"
#include "cpu/quantized_digits-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kStep = 2 * kLanes;          // numbers along K that a product of tiles adds up
constexpr int kBlockOutputs = 2 * kLanes;  // two tiles of weights share each tile of x
constexpr int kMostRowTiles = 2;
constexpr int kMostDigitRows = 6;      // more rows of bfloat16 are slower as digits (benches/LOG.md)
constexpr int kFactorGroups = kLanes;  // whose scales are widened at a time
constexpr int64_t kTileFloats = kLanes * kLanes;

// x of a call: [step][tile][pair of numbers][lane], and behind it the sums over groups in float32,
// [group][tile][lane]. A lane is a row; those behind the last are zero. Narrower tiles are no faster.
struct LaneRows {
  int64_t steps, groups, tiles;

  explicit LaneRows(const QuantizedTask& task)
      : steps(task.groups * task.group / kStep),
        groups(task.groups),
        tiles((task.rows + kLanes - 1) / kLanes) {}

  int64_t step_floats() const { return tiles * kTileFloats; }
  int64_t sums() const { return steps * step_floats(); }
  size_t floats() const { return sums() + groups * tiles * kLanes; }
};

// The numbers of a step in the order in which `StepOfWeights` has those of 4 bits.
template <int kBits>
VEC_FN F in_order(const uint16_t* x) {
  const __m512i numbers = _mm512_loadu_si512(x);
  if constexpr (kBits == 8) return _mm512_castsi512_ps(numbers);
  alignas(64) uint16_t from[kStep];
  for (int i = 0; i < kStep; i++) from[i] = (uint16_t)(i % 8 * 4 + i / 8);
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(from), numbers));
}

template <int kBits>
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
        block[lane] = in_order<kBits>(x);
        const F first = as_multiplied_in_pairs(load_bf16(x));
        const F second = as_multiplied_in_pairs(load_bf16(x + kLanes));
        sums[(step / group_steps * layout.tiles + tile) * kLanes + lane] +=
            _mm512_reduce_add_ps(add(first, second));
      }
      transpose(block);
      for (int pair = 0; pair < kLanes; pair++, packed += kLanes) store(packed, block[pair]);
    }
}

// The packed numbers of a step as bfloat16: `read` gives (number + kAdded) / kUnit.
template <int kBits>
struct StepOfWeights;

// Each quarter of the vector takes one half byte of each 16 bits. In the upper bits of the mantissa of 4 it
// counts quarters: 4 to 7.75, which takes no table and adds up to no more than numbers from -8 to 7.
template <>
struct StepOfWeights<4> {
  static constexpr int kBytes = 16;
  static constexpr float kAdded = 16, kUnit = 4;

  VEC_FN __m512i read(const uint8_t* p) {
    const __m512i to_mantissa = _mm512_setr_epi32(29, 29, 29, 29, 1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9);
    const __m512i mantissa = _mm512_set1_epi16(0x0078), four = _mm512_set1_epi16(0x4080);
    const __m512i numbers = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p));
    constexpr int kFirstAndSecondOrThird = 0xea;
    return _mm512_ternarylogic_epi32(_mm512_rorv_epi32(numbers, to_mantissa), mantissa, four,
                                     kFirstAndSecondOrThird);
  }
};

template <>
struct StepOfWeights<8> {
  static constexpr int kBytes = 32;
  static constexpr float kAdded = -128, kUnit = 1;

  VEC_FN __m512i read(const uint8_t* p) {
    const F first = _mm512_cvtepi32_ps(GroupOfPairs<8>::numbers(p));
    const F second = _mm512_cvtepi32_ps(GroupOfPairs<8>::numbers(p + kLanes));
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
  }
};

// All rows of a task times its weights, whose groups have kSteps steps.
template <int kBits, int kSteps>
class TileProduct {
  typedef StepOfWeights<kBits> Step;
  static constexpr int64_t kGroupBytes = kSteps * Step::kBytes;

  const QuantizedTask& task_;
  const LaneRows layout_;
  const float* const x_;
  const float* const x_sums_ = x_ + layout_.sums();
  const uint8_t* words_[kBlockOutputs];
  char* pending_ = nullptr;  // where sums belong that are computed, but not stored
  bool second_set_ = false;
  alignas(64) uint16_t weights_[2][kSteps][kBlockOutputs][kStep];
  alignas(64) float sums_[2][kMostRowTiles][kBlockOutputs][kLanes];
  alignas(64) float y_[kMostRowTiles][kBlockOutputs][kLanes];
  alignas(64) float scale_[kBlockOutputs][kFactorGroups], bias_[kBlockOutputs][kFactorGroups];

 public:
  TileProduct(const QuantizedTask& task, const float* x) : task_(task), layout_(task), x_(x) {}

  void run() {
    load_config(TileConfig());
    for (int64_t n = 0; n < task_.outputs; n += kBlockOutputs) run_outputs(n);
    _tile_release();
  }

 private:
  // Outputs behind the last are the last again, whose results nobody keeps.
  int64_t row(int64_t n) const { return n < task_.outputs ? n : task_.outputs - 1; }

  void run_outputs(int64_t n) {
    for (int i = 0; i < kBlockOutputs; i++)
      words_[i] = (const uint8_t*)(task_.w + row(n + i) * task_.w_row_stride);
    memset(y_, 0, layout_.tiles * sizeof y_[0]);
    for (int64_t group = 0; group < layout_.groups + 2; group++) {
      if (group > 0 && group <= layout_.groups) multiply(group - 1);
      if (group > layout_.groups) store_pending();
      if (group < layout_.groups) write_weights(group);
      if (group > 1) add_sums(n, group - 2);
    }
    for (int64_t begin = 0; begin < kBlockOutputs && n + begin < task_.outputs; begin += kLanes)
      for (int tile = 0; tile < layout_.tiles; tile++) write_outputs(n, begin, tile);
  }

  // [step][output][number]
  void write_weights(int64_t group) {
    // Where rows lie behind each other a part of the next block, perhaps of another task or behind the end.
    prefetch(words_[0] + kBlockOutputs * (task_.w_row_stride * 4 + group * kGroupBytes),
             kBlockOutputs * kGroupBytes);
    auto* out = weights_[group % 2];
#pragma GCC unroll 4
    for (int i = 0; i < kBlockOutputs; i++) {
#pragma GCC unroll 4
      for (int step = 0; step < kSteps; step++)
        _mm512_store_si512(out[step][i], Step::read(words_[i] + group * kGroupBytes + step * Step::kBytes));
    }
  }

  void multiply(int64_t group) {
    settle_stores();
    const float* x = x_ + group * kSteps * layout_.step_floats();
    for (int tile = 0; tile < layout_.tiles; tile++, x += kTileFloats) {
      auto* sums = (char*)sums_[group % 2][tile];
      if (second_set_)
        multiply_tile<1>(weights_[group % 2], x, sums);
      else
        multiply_tile<0>(weights_[group % 2], x, sums);
    }
  }

  // A group of weights times a tile of x, with one set of tiles; then the sums before leave the other.
  template <int kSet>
  inline __attribute__((always_inline)) void multiply_tile(const uint16_t (*weights)[kBlockOutputs][kStep],
                                                           const float* x, char* sums) {
    zero_set<kSet>();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; step++) {
      _tile_loadd(6, x + step * layout_.step_floats(), 64);
      _tile_loadd(4, weights[step], 64);
      _tile_loadd(5, weights[step] + kLanes, 64);
      if constexpr (kSet == 0) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
      } else {
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 5, 6);
      }
    }
    if (pending_) store_set<1 - kSet>(pending_, kLanes * 64, 64);
    pending_ = sums;
    second_set_ = kSet == 0;
  }

  void store_pending() {
    if (!pending_) return;
    if (second_set_)
      store_set<0>(pending_, kLanes * 64, 64);
    else
      store_set<1>(pending_, kLanes * 64, 64);
    pending_ = nullptr;
  }

  // y += scale * (what a group adds up to) + bias * (the sum of x over it).
  void add_sums(int64_t n, int64_t group) {
    const int factor = (int)(group % kFactorGroups);
    if (factor == 0) read_factors(n, group);
    for (int tile = 0; tile < layout_.tiles; tile++) {
      const F x_sum = load(x_sums_ + (group * layout_.tiles + tile) * kLanes);
      const auto* sums = sums_[group % 2][tile];
#pragma GCC unroll 8
      for (int output = 0; output < kBlockOutputs; output++) {
        const F y = fma(x_sum, set1(bias_[output][factor]), _mm512_load_ps(y_[tile][output]));
        _mm512_store_ps(y_[tile][output], fma(_mm512_load_ps(sums[output]), set1(scale_[output][factor]), y));
      }
    }
  }

  // In float32, as they belong to the numbers that weights are read as.
  void read_factors(int64_t n, int64_t group) {
    const F less = set1(-Step::kAdded), unit = set1(Step::kUnit);
    const int64_t left = layout_.groups - group;
    for (int i = 0; i < kBlockOutputs; i++) {
      auto* scales = (const uint16_t*)task_.scales + row(n + i) * task_.scales_row_stride + group;
      auto* biases = (const uint16_t*)task_.biases + row(n + i) * task_.biases_row_stride + group;
      bring_line(scales + kBlockOutputs * task_.scales_row_stride);
      bring_line(biases + kBlockOutputs * task_.biases_row_stride);
      const F scale = load_some<Element::bf16>(scales, left);
      _mm512_store_ps(scale_[i], mul(unit, scale));
      _mm512_store_ps(bias_[i], fma(less, scale, load_some<Element::bf16>(biases, left)));
    }
  }

  void write_outputs(int64_t n, int64_t begin, int tile) {
    F block[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) block[i] = _mm512_load_ps(y_[tile][begin + i]);
    transpose(block);
    for (int64_t lane = 0, m = tile * kLanes; lane < kLanes && m < task_.rows; lane++, m++)
      store_some<Element::bf16>((uint16_t*)task_.y + m * task_.y_row_stride + n + begin, block[lane],
                                task_.outputs - n - begin);
  }
};

template <int kBits>
struct LanesOnTiles {
  static size_t packed_bytes(const QuantizedTask& task) { return LaneRows(task).floats() * sizeof(float); }
  static void pack(const QuantizedTask& task, void* packed) { pack_lanes<kBits>(task, (float*)packed); }
  static void run(const QuantizedTask& task, const void* packed) {
    auto* x = (const float*)packed;
    if (task.group == 32) return TileProduct<kBits, 1>(task, x).run();
    if (task.group == 64) return TileProduct<kBits, 2>(task, x).run();
    TileProduct<kBits, 4>(task, x).run();
  }
};

// Few rows of bfloat16: one or two as digits in vectors, some more as digits on tiles, others as they are.
struct OnTiles {
  static constexpr int kRows = kMostRowTiles * kLanes;
  template <int kBits, Element kElement>
  using One = OneInVectors<DigitUnits<kBits>, kElement>;
  template <int kBits, Element kElement>
  struct Few {
    static_assert(kElement == Element::bf16);

    static size_t packed_bytes(const QuantizedTask& task) {
      return in_form(task, [&](auto form) { return form.packed_bytes(task); });
    }
    static void pack(const QuantizedTask& task, void* packed) {
      in_form(task, [&](auto form) { form.pack(task, packed); });
    }
    static void run(const QuantizedTask& task, const void* packed) {
      in_form(task, [&](auto form) { form.run(task, packed); });
    }

   private:
    template <class Call>
    static auto in_form(const QuantizedTask& task, Call call) {
      if (task.rows <= kMostDigitRows) return call(DigitsOnTiles<kBits, kElement>());
      return call(LanesOnTiles<kBits>());
    }
  };
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
