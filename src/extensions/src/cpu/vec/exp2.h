// 2^x for instruction sets without an instruction for it. Included inside the namespace of vec/<isa>.h, after
// its arithmetic; needs min and pow2_from_low_bits, which shifts the low bits of each lane into the exponent.

// x = n + f with n integer and |f| <= 1/2, so 2^x = 2^n * p(f). Adding 1.5 * 2^23 rounds x to n and leaves n
// in the low bits; the added 127 is the exponent bias. The polynomial p has the least relative error (9.2e-8
// before rounding) among those with p(0) = 1, so whole numbers are exact. The clamps come first: at n = -127
// the factor is +0, at n = 128 it is infinite, and a NaN passes both because it is the second operand.
VEC_FN F exp2(F x) {
  const F shift = set1(12582912.0f + 127.0f);
  x = max(set1(-127.0f), min(set1(128.0f), x));
  const F n = add(x, shift);
  const F f = sub(x, sub(n, shift));
  F p = set1(1.3264727e-3f);
  p = fma(p, f, set1(9.6715127e-3f));
  p = fma(p, f, set1(5.5507337e-2f));
  p = fma(p, f, set1(2.4022242e-1f));
  p = fma(p, f, set1(6.9314698e-1f));
  p = fma(p, f, set1(1.0f));
  return mul(p, pow2_from_low_bits(n));
}
