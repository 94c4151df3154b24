// Counts of things that broadcast inputs can have more of than 64 bits hold: they stop at the largest number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace tiny_llm_ext {

inline constexpr int64_t kMostCounted = std::numeric_limits<int64_t>::max();

// Of numbers that are not negative.
inline int64_t saturating_product(std::initializer_list<int64_t> factors) {
  if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kMostCounted;
  }
  return product;
}

inline int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kMostCounted : sum;
}

}  // namespace tiny_llm_ext
