// 16-bit floating-point formats by definition, in double: slow, and independent of the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tiny_llm_ext::tests {

struct HalfFormat {
  int fraction_bits;
  int smallest_exponent;  // of a normal number
  uint16_t infinity;      // its bits

  double decode(uint16_t bits) const {
    const double sign = bits & 0x8000 ? -1 : 1;
    const int magnitude = bits & 0x7fff;
    if (magnitude > infinity) return NAN;
    if (magnitude == infinity) return sign * INFINITY;
    const int field = magnitude >> fraction_bits, fraction = magnitude & ((1 << fraction_bits) - 1);
    const int significand = field == 0 ? fraction : fraction + (1 << fraction_bits);
    const int exponent = smallest_exponent + (field == 0 ? 0 : field - 1);
    return sign * std::ldexp(significand, exponent - fraction_bits);
  }

  // The nearest number, ties to an even significand. Bit patterns count units in the last place.
  uint16_t encode(double x) const {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    if (std::isnan(x)) return static_cast<uint16_t>(sign | infinity | 1 << (fraction_bits - 1));
    if (x == 0) return static_cast<uint16_t>(sign);
    if (std::isinf(x)) return static_cast<uint16_t>(sign | infinity);
    const int exponent = std::max(std::ilogb(x), smallest_exponent);
    const double units = std::nearbyint(std::ldexp(std::fabs(x), fraction_bits - exponent));
    const double pattern = std::ldexp(exponent - smallest_exponent, fraction_bits) + units;
    return static_cast<uint16_t>(sign | static_cast<int>(std::min<double>(pattern, infinity)));
  }
};

constexpr HalfFormat kFloat16{10, -14, 0x7c00};
constexpr HalfFormat kBfloat16{7, -126, 0x7f80};

}  // namespace tiny_llm_ext::tests
