// Few rows times quantized weights on AMX tiles, in whole numbers: x as digits of 8 bits, the weights as the
// small integers that they are. What a part of K adds up to is exact; scales, biases and the units of x come
// to it in float32.
//
// Digits of up to five rows of x are an A operand. A turn of kLanes words of kLanes outputs, transposed,
// gives the bytes of the B operand: a word of eight half bytes two rows of it, a word of four bytes one. The
// three steps of a turn (weights to bytes, products, sums to float32) run one turn apart, and the sums of a
// part are stored after the products of the next, so that little waits for the tile unit or for what has just
// been stored. The order of the operations does not depend on the number of rows, nor do the bits of a row.
#pragma once

#include <math.h>

#include "cpu/amx_tiles-inl.h"
#include "cpu/digits-inl.h"
#include "cpu/quantized_one-inl.h"
#include "cpu/quantized_words-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kTileX = 16 / kDigits;    // rows of x whose digits fit into a tile
constexpr int kDigitRows = 2 * kTileX;  // at most
constexpr int64_t kTurnsAhead = 4;      // whose words are asked for

// How rows are dealt out to tiles: as many to each, which takes some rows of zeros.
struct DigitTiles {
  int tiles, rows;  // of each: digits

  explicit DigitTiles(int64_t x_rows) : tiles(x_rows <= kTileX ? 1 : 2) {
    rows = kDigits * (int)((x_rows + tiles - 1) / tiles);
  }

  int64_t x_rows() const { return tiles * rows / kDigits; }
};

// Tiles 0 and 1 hold sums, and 2 and 3 those that come next; 4 holds digits, 5 weights.
struct DigitTileConfig : TileConfig {
  DigitTileConfig(int digit_rows, int part) {
    for (int tile = 0; tile < 5; tile++) rows[tile] = digit_rows;
    row_bytes[4] = part;
    rows[5] = part / 4;
  }
};

template <Element kElement, int kBits, int kPart>
class DigitProduct {
  typedef StorageOf<kElement> T;
  static constexpr int kByteRows = kBits == 4 ? 2 * kLanes : kLanes;  // of a turn
  static constexpr int kTurnParts = 4 * kByteRows / kPart;
  static constexpr int kPartsKept = 2 * kTurnParts;

  const FewTask& task_;
  const DigitTiles tiles_;
  const DigitRows x_;
  const void* const packed_;
  const int64_t turns_ = (x_.parts + kTurnParts - 1) / kTurnParts;
  alignas(64) uint8_t bytes_[2][kByteRows][64];
  alignas(64) int32_t sums_[kPartsKept][kDigitRows][kDigits][kLanes];
  alignas(64) float y_[kDigitRows][kLanes];
  TurnedFactors<kBits, kElement> factors_;  // of kLanes groups

 public:
  DigitProduct(const FewTask& task, const void* packed)
      : task_(task), tiles_(task.rows), x_(task, tiles_.x_rows()), packed_(packed) {}

  void run() {
    const DigitTileConfig config(tiles_.rows, kPart);
    load_config(config);
    for (int64_t n = 0; n < task_.outputs; n += kLanes) run_outputs(n);
    _tile_release();
  }

 private:
  void run_outputs(int64_t n) {
    const int64_t left = task_.outputs - n;
    const RowBlock<uint32_t> words(task_.w + n * task_.w_row_stride, task_.w_row_stride, left,
                                   task_.groups * task_.group * kBits / 32);
    const RowBlock<T> scales((const T*)task_.scales + n * task_.scales_row_stride, task_.scales_row_stride,
                             left, task_.groups);
    const RowBlock<T> biases((const T*)task_.biases + n * task_.biases_row_stride, task_.biases_row_stride,
                             left, task_.groups);
    const int64_t next = kLanes * task_.w_row_stride;  // perhaps of another task, or behind the end
    ask_for_factors(n + 2 * kLanes);
    memset(y_, 0, task_.rows * sizeof y_[0]);
    for (int64_t turn = 0; turn < turns_ + 2; turn++) {
      if (turn > 0) multiply(turn - 1);
      if (turn < turns_) write_bytes(words, turn, next);
      if (turn > 1) add_sums(scales, biases, turn - 2);
    }
    for (int64_t m = 0; m < task_.rows; m++) store_outputs<kElement>(task_, m, n, load(y_[m]));
  }

  void ask_for_factors(int64_t n) const {
    for (int64_t i = n; i < n + kLanes; i++) {
      bring_line((const T*)task_.scales + i * task_.scales_row_stride);
      bring_line((const T*)task_.biases + i * task_.biases_row_stride);
    }
  }

  // The weights of a turn, a byte each: [four numbers of K][output][number].
  void write_bytes(const RowBlock<uint32_t>& words, int64_t turn, int64_t next) {
    const int64_t begin = turn * kLanes, left = words.length - begin - kTurnsAhead * kLanes;
    const int64_t ahead = left > 0 ? begin + kTurnsAhead * kLanes : next - left;
    F block[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
      bring_line(words.row[i] + ahead);
      block[i] = load_some<Element::f32>((const float*)words.row[i] + begin, words.length - begin);
    }
    transpose(block);
    auto* out = (__m512i*)bytes_[turn % 2];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
      const __m512i word = _mm512_castps_si512(block[i]);
      if constexpr (kBits == 4) {
        const __m512i half = _mm512_set1_epi8(15);
        const int row = i / 2 * 4 + i % 2;  // as `write_digits` orders numbers
        out[row] = _mm512_and_si512(word, half);
        out[row + 2] = _mm512_and_si512(_mm512_srli_epi32(word, 4), half);
      } else {
        out[i] = word;
      }
    }
  }

  // The products of the parts of a turn. The last sums are stored in the next turn.
  void multiply(int64_t turn) {
    settle_stores();
#pragma GCC unroll 4
    for (int part = 0; part < kTurnParts; part++) {
      const int64_t p = turn * kTurnParts + part;
      const uint8_t* bytes = bytes_[turn % 2][part * kPart / 4];
      if (p > x_.parts) return;
      if (p % 2 == 0)
        multiply_part<0>(p, bytes);
      else
        multiply_part<1>(p, bytes);
    }
  }

  // Part p times the digits, with one set of tiles; then the sums of the part before leave the other set.
  template <int kSet>
  inline __attribute__((always_inline)) void multiply_part(int64_t p, const uint8_t* bytes) {
    const bool second = tiles_.tiles > 1;
    if (p < x_.parts) {
      const int8_t* digits = x_.digits(packed_, p);
      _tile_loadd(5, bytes, 64);
      _tile_loadd(4, digits, kPart);
      if constexpr (kSet == 0) {
        _tile_zero(0);
        _tile_dpbsud(0, 4, 5);
      } else {
        _tile_zero(2);
        _tile_dpbsud(2, 4, 5);
      }
      if (second) {
        _tile_loadd(4, digits + tiles_.rows * kPart, kPart);  // the same register: see TileConfig
        if constexpr (kSet == 0) {
          _tile_zero(1);
          _tile_dpbsud(1, 4, 5);
        } else {
          _tile_zero(3);
          _tile_dpbsud(3, 4, 5);
        }
      }
    }
    if (p > 0) store_set<1 - kSet>((char*)sums_[(p - 1) % kPartsKept], second ? tiles_.rows * 64 : 0, 64);
  }

  void add_sums(const RowBlock<T>& scales, const RowBlock<T>& biases, int64_t turn) {
    const int64_t p = turn * kTurnParts, left = x_.parts - p;
    const int64_t group = p * kPart / task_.group;
    if (group % kLanes == 0 && p * kPart % task_.group == 0) factors_.read(scales, biases, group);
    if (left >= kTurnParts) return add_parts<kTurnParts>(p);
    for (int64_t part = 0; part < left; part++) add_parts<1>(p + part);
  }

  // y += scale * (what the digits add up to) * unit + bias * (the sum of x), for each part from p on.
  template <int kCount>
  inline __attribute__((always_inline)) void add_parts(int64_t p) {
    F scale[kCount], bias[kCount];
#pragma GCC unroll 4
    for (int part = 0; part < kCount; part++) {
      const int64_t group = (p + part) * kPart / task_.group % kLanes;
      scale[part] = factors_.scale[group];
      bias[part] = factors_.bias[group];
    }
    const int64_t rows = x_.rows;
    const float *unit = x_.units(packed_) + p * rows, *sum = x_.sums(packed_) + p * rows;
    const int32_t* high_excess = x_.high_excess(packed_) + p * rows;
    const int32_t* low_excess = x_.low_excess(packed_) + p * rows;
    const auto* digits = sums_ + p % kPartsKept;
    for (int64_t m = 0; m < task_.rows; m++) {
      F y = _mm512_load_ps(y_[m]);
#pragma GCC unroll 4
      for (int part = 0; part < kCount; part++) {
        const int32_t (*of)[kLanes] = digits[part][m];
        const int64_t at = part * rows + m;
        const W both =
            _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(of[1]), 8), _mm512_load_si512(of[2]));
        const W lower = _mm512_sub_epi32(both, _mm512_set1_epi32(low_excess[at]));
        const W high = _mm512_sub_epi32(_mm512_load_si512(of[0]), _mm512_set1_epi32(high_excess[at]));
        const F whole = fma(_mm512_cvtepi32_ps(high), set1(65536), _mm512_cvtepi32_ps(lower));
        y = fma(bias[part], set1(sum[at]), y);
        // The scale first: with the unit alone, sums of large x would overflow before it makes them small.
        y = fma(mul(whole, scale[part]), set1(unit[at]), y);
      }
      _mm512_store_ps(y_[m], y);
    }
  }
};

template <int kBits, Element kElement>
struct DigitsOnTiles {
  static size_t packed_bytes(const QuantizedTask& task) { return layout(task).bytes(); }
  static void pack(const QuantizedTask& task, void* packed) {
    const TinyNumbersCount mode;
    pack_digits<kElement, kBits>(task, layout(task), packed);
  }
  static void run(const FewTask& task, const void* packed) {
    const TinyNumbersCount mode;
    if (task.group == 32)
      DigitProduct<kElement, kBits, 32>(task, packed).run();
    else
      DigitProduct<kElement, kBits, 64>(task, packed).run();
  }

 private:
  static DigitRows layout(const QuantizedTask& task) {
    return DigitRows(task, DigitTiles(task.rows).x_rows());
  }
};

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
