// Random cases from a seed, and attention by definition.
#include "attention_case.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "half.h"

namespace tiny_llm_ext::tests {
namespace {

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  bool chance(double p) { return std::uniform_real_distribution<double>()(generator_) < p; }
  double normal() { return normal_(generator_); }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(generator_); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int64_t>(list.size())));
  }

 private:
  std::mt19937 generator_;
  std::normal_distribution<double> normal_;
};

Element element_of(MaskKind kind) {
  return kind == MaskKind::f16 ? Element::f16 : kind == MaskKind::bf16 ? Element::bf16 : Element::f32;
}

void draw_mask(AttentionCase& c, Random& random) {
  std::vector<double> drawn(c.gqa_heads * c.L * c.n_k);
  for (int64_t n = 0; n < static_cast<int64_t>(drawn.size()); ++n) {
    const bool huge = n % c.n_k % 7 == 3 && c.n_k > 7 && random.chance(0.2);
    const double finite = c.mask_kind == MaskKind::boolean ? 0 : huge ? -6e4 : 2 * random.normal();
    drawn[n] = random.chance(0.25) ? -INFINITY : rounded(element_of(c.mask_kind), finite);
  }
  for (int64_t g = 0; g < c.gqa_heads; ++g) {
    for (int64_t i = 0; i < c.L; ++i) {
      for (int64_t t = 0; t < c.n_k; ++t) {
        const int64_t row = (c.mask_per_head ? g : 0) * c.L + (c.mask_per_row ? i : 0);
        c.mask.push_back(drawn[row * c.n_k + (c.mask_per_key ? t : 0)]);
      }
    }
  }
}

}  // namespace

double rounded(Element element, double x) {
  if (element == Element::f32) return static_cast<float>(x);
  const HalfFormat& format = element == Element::f16 ? kFloat16 : kBfloat16;
  return format.decode(format.encode(x));
}

AttentionCase AttentionCase::numbered(int number) {
  constexpr int kSizes[] = {1, 8, 40, 64, 72, 80, 96, 112, 128, 192, 256};
  Random random(number);
  AttentionCase c{};
  c.element = static_cast<Element>(number % kElements);
  c.E = kSizes[number / kElements % std::size(kSizes)];
  c.gqa_heads = 1 + (number + number / 8) % 8;
  if (random.chance(0.1)) c.E = 1 + static_cast<int>(random.below(256));
  c.L = random.one_of<int64_t>({1, 1, 2, 3, 7, 16, 17, 33, 64, 65, 100, 150});
  c.n_q = random.chance(0.3) ? random.below(c.L + 1) : c.L;
  c.n_k =
      random.chance(0.2) ? c.L : random.one_of<int64_t>({0, 1, 2, 31, 63, 64, 65, 100, 128, 129, 200, 333});
  const bool decode = random.chance(0.3);
  if (decode) {
    c.L = random.one_of({1, 1, 40}), c.n_q = 1, c.n_k += random.below(200);
    c.gqa_heads = 1 + static_cast<int>(random.below(17)), c.E = 32 * (1 + static_cast<int>(random.below(8)));
  }
  while (c.gqa_heads * c.L * c.n_k * c.E > 3'000'000)
    c.L = (c.L + 1) / 2, c.n_q = std::min(c.n_q, c.L), c.n_k -= c.n_k / 4;
  c.left = random.one_of<int64_t>({kUnbounded, kUnbounded, kUnbounded, 0, 5, 64, 70});
  c.right = random.one_of<int64_t>({kUnbounded, 0, 0, 0, 3, 64});
  c.scale =
      random.chance(0.7) ? 1 / std::sqrt(static_cast<float>(c.E)) : random.one_of<float>({0.0f, -0.3f, 0.5f});
  c.softcap = random.chance(0.25) ? random.one_of<float>({0.7f, 5.0f, 50.0f}) : 0;
  c.has_sinks = random.chance(0.25);
  if (random.chance(0.5)) {
    c.mask_kind = random.one_of({MaskKind::boolean, MaskKind::f32, MaskKind::f16, MaskKind::bf16});
    c.mask_per_head = random.chance(0.5), c.mask_per_row = random.chance(0.7),
    c.mask_per_key = random.chance(0.8);
  }
  if (decode)
    c.mask_kind = MaskKind::none, c.softcap = 0,
    c.scale = random.one_of<float>({0.125f, 0.5f, 600.0f, 3.1e9f, 3.1e20f});
  if (random.chance(0.1)) c.poison = random.one_of({Poison::query, Poison::key});
  if (random.chance(0.4)) c.poison = Poison::value;  // reaches one element of the rows that see it
  c.query_gap = random.one_of<int64_t>({0, 0, 3}), c.key_gap = random.one_of<int64_t>({0, 0, 5});
  c.heads_outside = random.chance(0.5), c.mask_keys_outside = random.chance(0.2);
  c.guard = random.one_of({Guard::before, Guard::after, Guard::after});

  for (int64_t n = 0; n < c.gqa_heads * c.L * c.E; ++n) c.q.push_back(rounded(c.element, random.normal()));
  for (int64_t n = 0; n < c.n_k * c.E; ++n) c.k.push_back(rounded(c.element, random.normal()));
  for (int64_t n = 0; n < c.n_k * c.E; ++n) c.v.push_back(rounded(c.element, random.normal() + 0.5));
  if (c.mask_kind != MaskKind::none) draw_mask(c, random);
  for (int g = 0; g < c.gqa_heads && c.has_sinks; ++g)
    c.sinks.push_back(random.chance(0.2) ? -INFINITY : rounded(Element::f32, 3 * random.normal()));
  std::vector<double>* poisoned[] = {nullptr, &c.q, &c.k, &c.v};
  if (auto* values = poisoned[static_cast<int>(c.poison)]; values && !values->empty()) {
    // With a large scale float32 loses probabilities, and 0 times infinity is NaN.
    const double poison =
        c.poison == Poison::value && c.scale < 1 ? random.one_of<double>({NAN, INFINITY, -INFINITY}) : NAN;
    (*values)[random.below(static_cast<int64_t>(values->size()))] = poison;
  }
  return c;
}

void AttentionCase::hide_pages(int64_t page_size) {
  if (mask_kind == MaskKind::none) {
    mask_kind = MaskKind::boolean;
    mask.assign(gqa_heads * L * n_k, 0.0);
  }
  for (size_t n = 0; n < mask.size(); ++n)
    if (static_cast<int64_t>(n) % n_k / page_size % 3 == 0) mask[n] = -INFINITY;
}

std::string AttentionCase::name() const {
  static const char* const kElementNames[] = {"f32", "f16", "bf16"};
  static const char* const kMaskNames[] = {"", ", bool mask", ", f32 mask", ", f16 mask", ", bf16 mask"};
  static const char* const kPoisonNames[] = {"", ", NaN in q", ", NaN in k", ", NaN or infinity in v"};
  const auto side = [](int64_t limit) { return limit == kUnbounded ? "-" : std::to_string(limit); };
  return std::string(kElementNames[static_cast<int>(element)]) + " E=" + std::to_string(E) +
         " group=" + std::to_string(gqa_heads) + " L=" + std::to_string(L) + " n_q=" + std::to_string(n_q) +
         " n_k=" + std::to_string(n_k) + " window=" + side(left) + "," + side(right) +
         " scale=" + std::to_string(scale) + " softcap=" + std::to_string(softcap) +
         kMaskNames[static_cast<int>(mask_kind)] + (has_sinks ? ", sinks" : "") +
         kPoisonNames[static_cast<int>(poison)];
}

bool AttentionCase::visible(int64_t i, int64_t t) const {
  const int64_t position = i + n_k - n_q;
  return i < n_q && position - left <= t && t <= position + right;
}

ExpectedAttention expected_attention(const AttentionCase& c) {
  ExpectedAttention a;
  const auto score = [&c](int64_t row, int64_t t, double& magnitude) {
    double s = 0;
    magnitude = 0;
    for (int e = 0; e < c.E; ++e) {
      const double product = c.scale * c.q[row * c.E + e] * c.k[t * c.E + e];
      s += product, magnitude += std::fabs(product);
    }
    if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
    if (c.mask_kind != MaskKind::none)
      s += c.mask[row * c.n_k + t], magnitude += std::fabs(c.mask[row * c.n_k + t]);
    return s;
  };
  std::vector<double> s(c.n_k), magnitude(c.n_k);
  for (int64_t row = 0; row < c.gqa_heads * c.L; ++row) {
    const int64_t g = row / c.L, i = row % c.L;
    double top = -INFINITY, sum = 0, condition = 0;
    bool nan = false;
    for (int64_t t = 0; t < c.n_k; ++t) {
      const bool hidden =
          !c.visible(i, t) || (c.mask_kind != MaskKind::none && c.mask[row * c.n_k + t] == -INFINITY);
      s[t] = hidden ? -INFINITY : score(row, t, magnitude[t]);
      nan = nan || std::isnan(s[t]);
      top = std::max(top, s[t]);
    }
    if (c.has_sinks && i < c.n_q) top = std::max(top, c.sinks[g]);
    // The rounding error of a score multiplies its probability: by 2^-22 per unit of its terms, and a little
    // for exp2. Negligible probabilities may have any value that is negligible.
    constexpr double kNegligible = 1e-9;
    std::vector<double> o(c.E, 0.0), weighted(c.E, 0.0), negligible(c.E, 0.0);
    for (int64_t t = 0; t < c.n_k && !nan; ++t) {
      const double p = s[t] == -INFINITY ? 0 : std::exp(s[t] - top);
      if (s[t] == -INFINITY) continue;
      sum += p;
      if (p > kNegligible) condition = std::max(condition, magnitude[t]);
      for (int e = 0; e < c.E; ++e) {
        const double value = c.v[t * c.E + e], part = p * std::fabs(value);
        o[e] += std::isfinite(value) ? p * value : value, weighted[e] += part;
        if (p <= kNegligible) negligible[e] += part;
      }
    }
    if (c.has_sinks && i < c.n_q && c.sinks[g] != -INFINITY) sum += std::exp(c.sinks[g] - top);
    const double relative = 2e-6 + 0x1p-22 * condition;
    for (int e = 0; e < c.E; ++e) {
      const double value = nan ? NAN : sum == 0 ? 0 : o[e] / sum;
      const double size = sum == 0 ? 0 : weighted[e] / sum;
      const double storage = c.element == Element::f32 ? 0
                             : c.element == Element::f16
                                 ? 0x1p-11 * std::fabs(value) + 0x1p-25
                                 : 0x1p-8 * (std::fabs(value) + size);  // P is rounded, too
      a.o.push_back(value);
      a.o_error.push_back(relative * size + storage + (sum == 0 ? 0 : negligible[e] / sum));
    }
    a.lse.push_back(nan ? NAN : sum == 0 ? -INFINITY : top + std::log(sum));
    a.lse_error.push_back(relative * std::max(1.0, std::fabs(a.lse.back())));
  }
  return a;
}

}  // namespace tiny_llm_ext::tests
