// Built once per instruction set, with its flags; like the kernels it may include neither the STL nor MLX.
#include "vec_probe.h"

#include VEC_HEADER
#ifdef VEC_PAIRS
#include "cpu/quantized/codec/bf16_group-inl.h"
#endif

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {
namespace {

// Calls with<G>() for the power of two up to kLanes that equals g.
template <int G, class With>
void for_group(int g, With with) {
  if (g == G) with.template operator()<G>();
  if constexpr (G < kLanes) for_group<2 * G>(g, with);
}

// Calls with<index>() for the one that equals `index`, of `count`.
template <int kCount, class With, int kIndex = 0>
void for_index(int index, With with) {
  if (index == kIndex) with.template operator()<kIndex>();
  if constexpr (kIndex + 1 < kCount) for_index<kCount, With, kIndex + 1>(index, with);
}

#ifdef VEC_PAIRS
const tests::PairProbe kPairs = {
    .load_pairs = [](const uint16_t* p, int count,
                     uint16_t* out) { store((float*)out, load_pairs(p, count)); },
    .zip_pairs = [](const uint16_t* low, const uint16_t* high, int count,
                    uint16_t* out) { store((float*)out, zip_pairs(low, high, count)); },
    .make_pairs = [](const float* low, const float* high,
                     uint16_t* out) { store((float*)out, make_pairs(load(low), load(high))); },
    .dot_pairs =
        [](const uint16_t* a, const uint16_t* b, const float* acc, float* out) {
          store(out, dot_pairs(load((const float*)a), load((const float*)b), load(acc)));
        },
    .reread =
        [](uint16_t* p, const uint16_t* other, float* before, float* after) {
          const F ones = set1(__builtin_bit_cast(float, 0x3f803f80));
          const F x = dot_broadcast_pair((const float*)p, ones, zero());
          for (int i = 0; i < 2; ++i) p[i] = other[i];
          store(after, dot_broadcast_pair((const float*)p, ones, zero()));
          store(before, x);
        },
    .look_up =
        [](int less, int times, int index, const uint32_t* p, uint16_t* out) {
          static constexpr PairTable kNumber(8, 1), kLower(0, 1), kUpper(8, 16);
          const PairTable& table = times == 16 ? kUpper : less == 0 ? kLower : kNumber;
          for_index<4>(index, [&]<int kIndex>() {
            store((float*)out, look_up<kIndex>(_mm512_loadu_si512(p), table));
          });
        },
};
#endif

const tests::VecProbe kProbe = {
    .lanes = kLanes,
    .exp2 = [](const float* x, float* out) { store(out, exp2(load(x))); },
    .max = [](const float* a, const float* b, float* out) { store(out, max(load(a), load(b))); },
    .min = [](const float* a, const float* b, float* out) { store(out, min(load(a), load(b))); },
    .fma = [](const float* a, const float* b, const float* c,
              float* out) { store(out, fma(load(a), load(b), load(c))); },
    .div = [](const float* a, const float* b, float* out) { store(out, div(load(a), load(b))); },
    .select_less_equal =
        [](const float* a, const float* b, const float* yes, const float* no, float* out) {
          store(out, select(less_equal(load(a), load(b)), load(yes), load(no)));
        },
    .select_equal = [](const float* a, const float* b, const float* yes, const float* no,
                       float* out) { store(out, select(equal(load(a), load(b)), load(yes), load(no))); },
    .all_between =
        [](const float* low, const float* x, const float* high) {
          return all(mask_and(less_equal(load(low), load(x)), less_equal(load(x), load(high))));
        },
    .load_f16 = [](const uint16_t* p, float* out) { store(out, load_f16(p)); },
    .load_bf16 = [](const uint16_t* p, float* out) { store(out, load_bf16(p)); },
    .store_f16 = [](const float* x, uint16_t* out) { store_f16(out, load(x)); },
    .store_bf16 = [](const float* x, uint16_t* out) { store_bf16(out, load(x)); },
    .load_u4 = [](const uint8_t* p, float* out) { store(out, load_u4(p)); },
    .load_u8 = [](const uint8_t* p, float* out) { store(out, load_u8(p)); },
    .decode_quant =
        [](int bits, int index, const uint32_t* p, float* out) {
          if (bits == 4)
            for_index<8>(index, [&]<int kIndex>() { store(out, decode_quant<4, kIndex>(load_words<4>(p))); });
          else
            for_index<4>(index, [&]<int kIndex>() { store(out, decode_quant<8, kIndex>(load_words<8>(p))); });
        },
    .permute = [](const float* x, const int32_t* from, float* out) { store(out, permute(load(x), from)); },
    .broadcast = [](int g, const float* p,
                    float* out) { for_group<1>(g, [&]<int G>() { store(out, broadcast<G>(p)); }); },
    .reread =
        [](int g, uint32_t* p, float* before, float* after) {
          const auto twice = [&](auto read) {
            const F x = read((const float*)p);
            for (int i = 0; i < kLanes; ++i) p[i]++;
            store(after, read((const float*)p));
            store(before, x);
          };
          if (g == 0) return twice([](const float* at) { return load(at); });
          for_group<1>(g, [&]<int G>() { twice([](const float* at) { return broadcast<G>(at); }); });
        },
    .sum_neighbours =
        [](int g, const float* x, float* out) {
          for_group<1>(g, [&]<int G>() { store(out, sum_neighbours<G>(load(x))); });
        },
    .sum_lanes = [](const float* p, int64_t stride, float* out) { store(out, sum_lanes(p, stride)); },
    .transpose =
        [](float* rows) {
          F block[kLanes];
          for (int i = 0; i < kLanes; ++i) block[i] = load(rows + i * kLanes);
          transpose(block);
          for (int i = 0; i < kLanes; ++i) store(rows + i * kLanes, block[i]);
        },
#ifdef VEC_PAIRS
    .pairs = &kPairs,
#else
    .pairs = nullptr,
#endif
};

}  // namespace
}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA

const tiny_llm_ext::tests::VecProbe& tiny_llm_ext::tests::vec_probe() {
  return tiny_llm_ext::cpu::TINY_LLM_ISA::kProbe;
}
