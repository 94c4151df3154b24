// The operations of one vec/<isa>.h as function pointers, so that code built without its flags can test them.
#pragma once

#include <stdint.h>

namespace tiny_llm_ext::tests {

// Each function works on one vector of `lanes` floats; G is a power of two up to `lanes`.
struct VecProbe {
  int lanes;
  void (*exp2)(const float* x, float* out);
  void (*max)(const float* a, const float* b, float* out);
  void (*min)(const float* a, const float* b, float* out);
  void (*fma)(const float* a, const float* b, const float* c, float* out);
  void (*div)(const float* a, const float* b, float* out);
  void (*select_less_equal)(const float* a, const float* b, const float* yes, const float* no, float* out);
  void (*select_equal)(const float* a, const float* b, const float* yes, const float* no, float* out);
  bool (*all_between)(const float* low, const float* x, const float* high);
  void (*load_f16)(const uint16_t* p, float* out);
  void (*load_bf16)(const uint16_t* p, float* out);
  void (*store_f16)(const float* x, uint16_t* out);
  void (*store_bf16)(const float* x, uint16_t* out);
  void (*load_u4)(const uint8_t* p, float* out);
  void (*load_u8)(const uint8_t* p, float* out);
  // Number `index` of `bits` bits in every word of p, minus half the range.
  void (*decode_quant)(int bits, int index, const uint32_t* p, float* out);
  void (*permute)(const float* x, const int32_t* from, float* out);
  void (*broadcast)(int G, const float* p, float* out);
  // Reads a vector of the 32-bit words at p, writes p[i] + 1 there, and reads it again; G as above, or 0 for
  // `load`.
  void (*reread)(int G, uint32_t* p, float* before, float* after);
  void (*sum_neighbours)(int G, const float* x, float* out);
  void (*sum_lanes)(const float* p, int64_t stride, float* out);
  void (*transpose)(float* rows);  // [lanes][lanes], in place
  const struct PairProbe* pairs;   // null where there are no pairs of bfloat16
};

// The operations on pairs, in vectors of `lanes` pairs: 2 * lanes bfloat16 numbers.
struct PairProbe {
  void (*load_pairs)(const uint16_t* p, int count, uint16_t* out);
  void (*zip_pairs)(const uint16_t* low, const uint16_t* high, int count, uint16_t* out);
  void (*make_pairs)(const float* low, const float* high, uint16_t* out);
  void (*dot_pairs)(const uint16_t* a, const uint16_t* b, const float* acc, float* out);
  // Sums the pair at p, writes `other` there, and sums that.
  void (*reread)(uint16_t* p, const uint16_t* other, float* before, float* after);
  // Half bytes `index` and `index` + 4 of every word of p as (half byte - less) * times, for one of the
  // tables of the kernels: (8, 1), (0, 1) or (8, 16).
  void (*look_up)(int less, int times, int index, const uint32_t* p, uint16_t* out);
};

// Of the instruction set this executable was built for.
const VecProbe& vec_probe();

}  // namespace tiny_llm_ext::tests
