// Arithmetic functions, and reinterpretation of bits.
#pragma once

#ifndef INFINITY
#define INFINITY (__builtin_inff())
#endif
#ifndef NAN
#define NAN (__builtin_nanf(""))
#endif
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f

// The same bits as another type.
template <class To, class From>
HARNESS_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  union Bits {
    From from;
    To to;
  } bits;
  bits.from = from;
  return bits.to;
}

namespace metal {

HARNESS_INLINE float exp(float x) { return __builtin_expf(x); }
HARNESS_INLINE float exp2(float x) { return __builtin_exp2f(x); }
HARNESS_INLINE float log(float x) { return __builtin_logf(x); }
HARNESS_INLINE float log2(float x) { return __builtin_log2f(x); }
HARNESS_INLINE float tanh(float x) { return __builtin_tanhf(x); }
HARNESS_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

HARNESS_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
HARNESS_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
HARNESS_INLINE int max(int a, int b) { return a > b ? a : b; }
HARNESS_INLINE int min(int a, int b) { return a < b ? a : b; }
HARNESS_INLINE uint max(uint a, uint b) { return a > b ? a : b; }
HARNESS_INLINE uint min(uint a, uint b) { return a < b ? a : b; }

}  // namespace metal
