#include "attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "metal/kernels/arguments.h"

namespace metal_on_cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kNanKey = 7;  // hidden by a mask over keys

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double uniform() {  // in (0, 1)
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double((x ^ x >> 31) >> 11) + 0.5) / 9007199254740992.0;
  }
  float normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return float(radius * std::cos(6.283185307179586 * uniform()));
  }

 private:
  uint64_t state_;
};

std::vector<float> normals(size_t count, uint64_t seed, Element element) {
  Random random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = random.normal();
  return decoded(encoded(numbers, element), element);
}

Element element_of_mask(int kind) {
  return kind == tiny_llm_ext::kHalfMask ? f16 : kind == tiny_llm_ext::kBfloatMask ? bf16 : f32;
}

// Hides a third of the keys, and all keys of row 3 if the mask has rows.
void make_mask(Problem& made) {
  const Case& call = made.call;
  const int sizes[4] = {call.batch, call.heads, call.L, call.S};
  int64_t count = 1;
  for (int axis = 3; axis >= 0; axis--) {
    if (call.mask.find("bhrk"[axis]) == std::string::npos) continue;
    made.mask_strides[axis] = count;
    count *= sizes[axis];
  }
  const bool is_boolean = call.mask_kind == tiny_llm_ext::kBooleanMask;
  Random random(4);
  for (int64_t at = 0; at < count; at++) {
    const bool row_is_hidden = made.mask_strides[2] && at / made.mask_strides[2] % call.L == 3;
    const bool key_is_hidden = random.uniform() < 1.0 / 3 || (call.nan_in_hidden_key && at == kNanKey);
    const float bias = random.normal();
    made.bias.push_back(row_is_hidden || key_is_hidden ? -kInfinity : is_boolean ? 0.0f : bias);
  }
  if (is_boolean) {
    for (float bias : made.bias) made.mask.push_back(bias == 0.0f);
  } else {
    made.mask = encoded(made.bias, element_of_mask(call.mask_kind));
    made.bias = decoded(made.mask, element_of_mask(call.mask_kind));
  }
}

}  // namespace

std::vector<uint8_t> encoded(const std::vector<float>& numbers, Element element) {
  const size_t size = element == f32 ? 4 : 2;
  std::vector<uint8_t> bytes(numbers.size() * size);
  for (size_t i = 0; i < numbers.size(); i++) {
    const __half half = __float2half(numbers[i]);
    const __nv_bfloat16 bfloat = __float2bfloat16(numbers[i]);
    if (element == f32) std::memcpy(&bytes[i * size], &numbers[i], size);
    if (element == f16) std::memcpy(&bytes[i * size], &half, size);
    if (element == bf16) std::memcpy(&bytes[i * size], &bfloat, size);
  }
  return bytes;
}

std::vector<float> decoded(const std::vector<uint8_t>& bytes, Element element) {
  const size_t size = element == f32 ? 4 : 2;
  std::vector<float> numbers(bytes.size() / size);
  for (size_t i = 0; i < numbers.size(); i++) {
    __half half;
    __nv_bfloat16 bfloat;
    if (element == f32) std::memcpy(&numbers[i], &bytes[i * size], size);
    std::memcpy(&half, &bytes[i * size], sizeof(half));
    std::memcpy(&bfloat, &bytes[i * size], sizeof(bfloat));
    if (element == f16) numbers[i] = __half2float(half);
    if (element == bf16) numbers[i] = __bfloat162float(bfloat);
  }
  return numbers;
}

Problem problem(const Case& call) {
  const size_t E = call.E, keys = size_t(call.batch) * call.kv_heads * call.S;
  Problem made;
  made.call = call;
  made.scale = 1.0f / std::sqrt(float(call.E));
  made.query = normals(size_t(call.rows()) * call.L * E, 1, call.element);
  made.key = normals(keys * E, 2, call.element);
  made.value = normals(keys * E, 3, call.element);
  if (call.mask_kind != tiny_llm_ext::kNoMask) make_mask(made);
  if (call.nan_in_hidden_key) {
    for (size_t j = kNanKey; j < keys; j += call.S) std::fill_n(&made.key[j * E], E, std::nanf(""));
  }
  return made;
}

template <class Real>
Answer attention(const Problem& given) {
  const Case& call = given.call;
  const int L = call.L, S = call.S, E = call.E, group = call.heads / call.kv_heads;
  Answer answer;
  for (int n = 0; n < call.rows(); n++) {
    const float* keys = &given.key[size_t(n / group) * S * E];
    const float* values = &given.value[size_t(n / group) * S * E];
    for (int i = 0; i < L; i++) {
      const float* q = &given.query[(size_t(n) * L + i) * E];
      std::vector<Real> score(S, -kInfinity);
      for (int j = 0; j < S && (!call.causal || j <= i + S - L); j++) {
        const int64_t at = n / call.heads * given.mask_strides[0] + n % call.heads * given.mask_strides[1] +
                           i * given.mask_strides[2] + j * given.mask_strides[3];
        const Real bias = given.bias.empty() ? Real(0) : Real(given.bias[at]);
        if (bias == -kInfinity) continue;
        Real dot = 0;
        for (int e = 0; e < E; e++) dot += Real(q[e]) * Real(keys[size_t(j) * E + e]);
        score[j] = Real(given.scale) * dot + bias;
      }
      const Real top = *std::max_element(score.begin(), score.end());
      Real sum = 0;
      for (Real& s : score) sum += s = top == -kInfinity ? Real(0) : std::exp(s - top);
      for (int e = 0; e < E; e++) {
        Real column = 0;
        for (int j = 0; j < S; j++) column += score[j] * Real(values[size_t(j) * E + e]);
        answer.output.push_back(sum == 0 ? 0.0 : double(column / sum));
      }
      answer.lse.push_back(double(top + std::log(sum)));
    }
  }
  return answer;
}

template Answer attention<float>(const Problem&);
template Answer attention<double>(const Problem&);

double largest_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return kInfinity;
  double largest = 0;
  for (size_t i = 0; i < actual.size(); i++) {
    if (actual[i] == expected[i]) continue;  // infinities, too
    const double error = std::abs(actual[i] - expected[i]);
    if (!std::isfinite(error)) return kInfinity;
    largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace metal_on_cuda
