// One attention call on the host: the case, its seeded inputs, and its result in float or double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metal_on_cuda {

enum class Kernel { readable, prefill, decode };
enum Element { f32, f16, bf16 };

// `mask` names the axes along which the mask is not broadcast: letters of "bhrk", for batch, head, row and
// key.
struct Case {
  std::string name;
  Kernel kernel = Kernel::readable;
  Element element = f32;
  int batch = 1, heads = 2, kv_heads = 1, L = 33, S = 65, E = 64;
  bool causal = false;
  std::string mask = "";
  int mask_kind = 0;  // AttentionMask
  bool nan_in_hidden_key = false;
  int splits = 1;

  int rows() const { return batch * heads; }  // of heads, over all batch entries
};

std::vector<Case> cases();

// The inputs as a kernel reads them, and the same numbers as floats.
struct Problem {
  Case call;
  float scale;
  std::vector<float> query, key, value;
  std::vector<float> bias;       // mask entries as numbers to add; -inf hides
  std::vector<uint8_t> mask;     // the same in memory
  int64_t mask_strides[4] = {};  // of batch, head, row and key
};

Problem problem(const Case& call);

// Numbers as bytes of an element type, and back.
std::vector<uint8_t> encoded(const std::vector<float>& numbers, Element element);
std::vector<float> decoded(const std::vector<uint8_t>& bytes, Element element);

struct Answer {
  std::vector<double> output, lse;
};

// Dense attention in float or in double.
template <class Real>
Answer attention(const Problem& given);

// The largest difference; infinite where only one of two is finite, or one is NaN.
double largest_error(const std::vector<double>& actual, const std::vector<double>& expected);

}  // namespace metal_on_cuda
