// Counts that saturate: broadcast inputs can exceed 64 bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace tiny_llm_ext {

inline constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max();

// The product of factors >= 0, such as the axes of a shape.
template <class Factors>
int64_t saturating_product(const Factors& factors) {
  if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kMaxCount;
  }
  return product;
}
inline int64_t saturating_product(std::initializer_list<int64_t> factors) {
  return saturating_product<std::initializer_list<int64_t>>(factors);
}

inline int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kMaxCount : sum;
}

}  // namespace tiny_llm_ext
