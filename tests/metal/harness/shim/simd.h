// Operations of a SIMD group. Each passes its line to the runtime, which reports lanes at different lines.
#pragma once

HARNESS_IMPORT void harness_threadgroup_barrier(int flags, int line);
HARNESS_IMPORT void harness_simdgroup_barrier(int flags, int line);
HARNESS_IMPORT float harness_reduce(float value, int operation, int line);
HARNESS_IMPORT uint harness_shuffle(uint bits, uint source, int line);
HARNESS_IMPORT uint harness_lane(void);

#define HARNESS_LINE int line = __builtin_LINE()

namespace metal {

enum class mem_flags : int { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
HARNESS_INLINE mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

HARNESS_INLINE void threadgroup_barrier(mem_flags flags, HARNESS_LINE) {
  harness_threadgroup_barrier(int(flags), line);
}
HARNESS_INLINE void simdgroup_barrier(mem_flags flags, HARNESS_LINE) {
  harness_simdgroup_barrier(int(flags), line);
}

HARNESS_INLINE float simd_sum(float x, HARNESS_LINE) { return harness_reduce(x, 0, line); }
HARNESS_INLINE float simd_max(float x, HARNESS_LINE) { return harness_reduce(x, 1, line); }
HARNESS_INLINE float simd_min(float x, HARNESS_LINE) { return harness_reduce(x, 2, line); }

template <class T>
HARNESS_INLINE T simd_shuffle(T x, ushort lane, HARNESS_LINE) {
  return as_type<T>(harness_shuffle(as_type<uint>(x), lane, line));
}
template <class T>
HARNESS_INLINE T simd_shuffle_xor(T x, ushort mask, HARNESS_LINE) {
  return as_type<T>(harness_shuffle(as_type<uint>(x), harness_lane() ^ mask, line));
}
template <class T>
HARNESS_INLINE T simd_broadcast(T x, ushort lane, HARNESS_LINE) {
  return as_type<T>(harness_shuffle(as_type<uint>(x), lane, line));
}

}  // namespace metal
