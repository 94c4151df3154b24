// Built once per instruction set, with its flags; like the kernels it may include neither the STL nor MLX.
#include "vec_probe.h"

#include VEC_HEADER

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {
namespace {

// Calls with<G>() for the power of two that equals g.
template <int G, class With>
void for_group(int g, With with) {
  if (g == G) with.template operator()<G>();
  if constexpr (G < kLanes) for_group<2 * G>(g, with);
}

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
          return all(both(less_equal(load(low), load(x)), less_equal(load(x), load(high))));
        },
    .load_f16 = [](const uint16_t* p, float* out) { store(out, load_f16(p)); },
    .load_bf16 = [](const uint16_t* p, float* out) { store(out, load_bf16(p)); },
    .store_f16 = [](const float* x, uint16_t* out) { store_f16(out, load(x)); },
    .store_bf16 = [](const float* x, uint16_t* out) { store_bf16(out, load(x)); },
    .load_u4 = [](const uint8_t* p, float* out) { store(out, load_u4(p)); },
    .load_u8 = [](const uint8_t* p, float* out) { store(out, load_u8(p)); },
    .broadcast = [](int g, const float* p,
                    float* out) { for_group<1>(g, [&]<int G>() { store(out, broadcast<G>(p)); }); },
    .sum_groups = [](int g, const float* x,
                     float* out) { for_group<1>(g, [&]<int G>() { store(out, sum_groups<G>(load(x))); }); },
    .transpose =
        [](float* rows) {
          F block[kLanes];
          for (int i = 0; i < kLanes; ++i) block[i] = load(rows + i * kLanes);
          transpose(block);
          for (int i = 0; i < kLanes; ++i) store(rows + i * kLanes, block[i]);
        },
};

}  // namespace
}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA

const tiny_llm_ext::tests::VecProbe& tiny_llm_ext::tests::vec_probe() {
  return tiny_llm_ext::cpu::TINY_LLM_ISA::kProbe;
}
