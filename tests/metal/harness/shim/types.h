// Numbers and short vectors.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

#if !defined(__OPENCL_CPP_VERSION__)
typedef _Float16 half;
#endif
#if defined(__clang__) || __GNUC__ >= 13
typedef __bf16 bfloat;
#elif defined(HARNESS_SYNTAX_ONLY)
typedef half bfloat;
#else
// The upper half of a float, rounded to even.
struct bfloat {
  ushort bits;

  constexpr bfloat() : bits(0) {}  // a trivial one would make g++ guard static arrays
  explicit bfloat(float x) {
    const uint whole = __builtin_bit_cast(uint, x);
    const uint rounded = whole + 0x7fff + (whole >> 16 & 1);
    bits = ushort((x == x ? rounded : whole | 0x400000) >> 16);
  }
  operator float() const { return __builtin_bit_cast(float, uint(bits) << 16); }
};
#endif

#if defined(__clang__)
#define HARNESS_VECTOR(T)                             \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
#else
#define HARNESS_VECTOR(T)     \
  struct T##2 { T x, y; };    \
  struct T##3 { T x, y, z; }; \
  struct T##4 { T x, y, z, w; };
#endif
HARNESS_VECTOR(float)
HARNESS_VECTOR(int)
HARNESS_VECTOR(uint)
HARNESS_VECTOR(ushort)
#undef HARNESS_VECTOR
