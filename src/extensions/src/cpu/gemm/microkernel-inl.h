// The vector microkernel of attention and of blocked products: a register-blocked loop
// C[m][lanes] (+)= sum over steps of broadcast(A[m][step]) * B[step][lanes], MR rows m by NR vectors of
// lanes.
//
// M is the dimension that is broadcast. A stays in the layout it has in memory. For attention scores, A is
// the K tile and B the packed queries; for the output, A is the V tile (column-major) and B the
// probabilities. For x w^T, A is the weights (M: outputs) and B the packed rows of x.
#pragma once

#include "cpu/gemm/pack-inl.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kRowVectors = kRegisters == 32 ? 4 : 2;  // the largest NR
constexpr int kTileLanes = kRowVectors * kLanes;       // lanes of B and C, at most
constexpr int kLineFloats = 64 / sizeof(float);        // of a cache line

// What a step does to a sum. PairMac, where there is one, does it to pairs of bfloat16 (vec/avx512_pairs.h).
struct FloatMac {
  VEC_FN F mac(F a, F b, F c) { return fma(a, b, c); }
  VEC_FN F mac_broadcast(const float* a, F b, F c) { return fma(broadcast<1>(a), b, c); }
};

enum class LayoutA { row_major, column_major };

struct OperandA {
  const float* data;
  int64_t row_stride;         // from one m to the next
  int64_t step_stride;        // from one step to the next
  int64_t prefetch_distance;  // from an element to that of the next tile
};

// Prefetches the elements of the next tile that correspond to those of this step. With NR = 1 the loops are
// as fast as memory, and hardware does not predict their short runs; a few prefetches a step cost nothing. A
// prefetch beyond the last tile is harmless.
template <int MR, int kLanesPerRow, LayoutA kLayout>
VEC_FN void prefetch_next_tile(OperandA a, int step) {
  if constexpr (kLayout == LayoutA::column_major) {
    for (int m = 0; m < MR * kLanesPerRow; m += kLineFloats) prefetch_l2(a.data + a.prefetch_distance + m);
  } else if (step * kLanesPerRow % kLineFloats == 0) {
    for (int m = 0; m < MR; m++) prefetch_l2(a.data + a.prefetch_distance + m * a.row_stride);
  }
}

// The addresses of one element in each of MR rows, as a base for every four rows and two strides: compilers
// keep an offset for every row, more than there are registers.
template <int MR>
struct RowAddresses {
  const float* base[(MR + 3) / 4];
  int64_t stride;

  VEC_FN RowAddresses of(OperandA a) {
    RowAddresses rows;
    rows.stride = a.row_stride;
#pragma GCC unroll 4
    for (int i = 0; i < (MR + 3) / 4; i++) rows.base[i] = a.data + 4 * i * a.row_stride;
    return rows;
  }
  inline __attribute__((always_inline)) void advance(int64_t by) {
#pragma GCC unroll 4
    for (const float*& p : base) {
      p += by;
      __asm__("" : "+r"(p));  // keeps the compiler from recomputing it
    }
  }
  inline __attribute__((always_inline)) const float* operator[](int m) const {
    return base[m / 4] + m % 4 * stride;
  }
};

// Prefetches of the data that is read after a product.
struct NoPrefetch {
  template <int MR, int NR>
  VEC_FN NoPrefetch lines(int, int) {
    return {};
  }
  VEC_FN void advance() {}
};

// Cache lines, one every few steps.
struct PrefetchLines {
  const char* data;
  int every;
  int left = 1;  // steps to the next line

  inline __attribute__((always_inline)) void advance() {
    if (--left) return;
    prefetch_l2(data);
    data += kLineFloats * sizeof(float);
    left = every;
  }
};

// As many bytes as B has, spread over the steps: prefetched at once, they would stall the product.
struct PrefetchBytes {
  const char* data;
  int64_t bytes;

  // The share of a block: MR of M rows of C, from row m on, of NR vectors each.
  template <int MR, int NR>
  inline __attribute__((always_inline)) PrefetchLines lines(int m, int M) const {
    const int every = M * kLineFloats / (MR * NR * kLanes);
    return {data + bytes * m / M, every ? every : 1};
  }
};

// MR x NR accumulators (NR in vectors). With kLanesPerRow > 1 as many neighbouring lanes share a row of B: a
// step takes kLanesPerRow elements, one for each of these lanes, and their sums are added at the end.
template <class Mac, int MR, int NR, int kLanesPerRow, bool kAccumulate, LayoutA kLayout, class Lines>
VEC_FN void gemm_block(OperandA a, const float* b, int steps, float* c, Lines prefetch) {
  F acc[MR][NR];
#pragma GCC unroll 16
  for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
    for (int n = 0; n < NR; n++) acc[m][n] = kAccumulate ? load(c + (m * NR + n) * kLanes) : zero();
  constexpr bool kSharedAddresses = NR == 1 && MR > 8 && kLayout == LayoutA::row_major;
  [[maybe_unused]] auto rows = RowAddresses<MR>::of(a);
  for (int step = 0; step < steps; step++) {
    F row[NR];
#pragma GCC unroll 4
    for (int n = 0; n < NR; n++) row[n] = load(b + n * kLanes);
    if constexpr (NR == 1 && MR > 2) prefetch_next_tile<MR, kLanesPerRow, kLayout>(a, step);
    if constexpr (NR > 1) prefetch.advance();  // a single vector prefetches A instead
#pragma GCC unroll 16
    for (int m = 0; m < MR; m++) {
      const float* p = kSharedAddresses ? rows[m] : a.data + m * a.row_stride;
      if constexpr (NR == 1 && kLanesPerRow == 1) {
        acc[m][0] = Mac::mac_broadcast(p, row[0], acc[m][0]);
      } else {
        const F x = broadcast<kLanesPerRow>(p);
#pragma GCC unroll 4
        for (int n = 0; n < NR; n++) acc[m][n] = Mac::mac(x, row[n], acc[m][n]);
      }
    }
    a.data += a.step_stride;
    if constexpr (kSharedAddresses) rows.advance(a.step_stride);
    b += NR * kLanes;
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
    for (int n = 0; n < NR; n++) {
      F x = acc[m][n];
      if constexpr (!kAccumulate && kLanesPerRow > 1) x = sum_neighbours<kLanesPerRow>(x);
      store(c + (m * NR + n) * kLanes, x);
    }
}

// MR for NR vectors. 32 registers: 24 accumulators for NR >= 3, else 16, which hide the latency of FMA. 16
// registers: 12 accumulators, or 8 for NR = 1.
constexpr int block_rows(int NR) {
  return kRegisters == 32 ? (NR == 1 ? 16 : NR <= 3 ? 8 : 6) : (NR == 1 ? 8 : 6);
}

template <class Mac, int MR, int NR, int kLanesPerRow, bool kAccumulate, LayoutA kLayout, class Prefetch>
VEC_FN int gemm_rows(int m, OperandA a, const float* b, int steps, float* c, int M, Prefetch prefetch) {
  for (; m + MR <= M; m += MR)
    gemm_block<Mac, MR, NR, kLanesPerRow, kAccumulate, kLayout>(
        {a.data + m * a.row_stride, a.row_stride, a.step_stride, a.prefetch_distance}, b, steps,
        c + m * NR * kLanes, prefetch.template lines<MR, NR>(m, M));
  return m;
}

template <class Mac, int NR, int kLanesPerRow, bool kAccumulate, LayoutA kLayout, class Prefetch = NoPrefetch>
static void gemm(OperandA a, const float* b, int steps, float* c, int M, Prefetch prefetch = {}) {
  constexpr int MR = block_rows(NR);
  int m = gemm_rows<Mac, MR, NR, kLanesPerRow, kAccumulate, kLayout>(0, a, b, steps, c, M, prefetch);
  if constexpr (MR > 8)
    m = gemm_rows<Mac, 8, NR, kLanesPerRow, kAccumulate, kLayout>(m, a, b, steps, c, M, prefetch);
  if constexpr (MR > 4)
    m = gemm_rows<Mac, 4, NR, kLanesPerRow, kAccumulate, kLayout>(m, a, b, steps, c, M, prefetch);
  m = gemm_rows<Mac, 2, NR, kLanesPerRow, kAccumulate, kLayout>(m, a, b, steps, c, M, prefetch);
  gemm_rows<Mac, 1, NR, kLanesPerRow, kAccumulate, kLayout>(m, a, b, steps, c, M, prefetch);
}

// Calls the instance for NR = vectors.
template <class Mac, bool kAccumulate, LayoutA kLayout, class Prefetch = NoPrefetch>
static void gemm_vectors(int vectors, OperandA a, const float* b, int steps, float* c, int M,
                         Prefetch prefetch = {}) {
  switch (vectors) {
    case 1:
      return gemm<Mac, 1, 1, kAccumulate, kLayout>(a, b, steps, c, M, prefetch);
    case 2:
      return gemm<Mac, 2, 1, kAccumulate, kLayout>(a, b, steps, c, M, prefetch);
    case 3:
      if constexpr (kRowVectors >= 3)
        return gemm<Mac, 3, 1, kAccumulate, kLayout>(a, b, steps, c, M, prefetch);
    case 4:
      if constexpr (kRowVectors >= 4)
        return gemm<Mac, 4, 1, kAccumulate, kLayout>(a, b, steps, c, M, prefetch);
  }
}

// The same for a query tile, whose rows may share lanes.
template <class Mac, bool kAccumulate, LayoutA kLayout>
static void gemm_query_tile(int vectors, int lanes_per_row, OperandA a, const float* b, int steps, float* c,
                            int M) {
  switch (lanes_per_row) {
    case 2:
      return gemm<Mac, 1, 2, kAccumulate, kLayout>(a, b, steps, c, M);
    case 4:
      return gemm<Mac, 1, 4, kAccumulate, kLayout>(a, b, steps, c, M);
    case 8:
      if constexpr (kLanes >= 8) return gemm<Mac, 1, 8, kAccumulate, kLayout>(a, b, steps, c, M);
    case 16:
      if constexpr (kLanes >= 16) return gemm<Mac, 1, 16, kAccumulate, kLayout>(a, b, steps, c, M);
  }
  gemm_vectors<Mac, kAccumulate, kLayout>(vectors, a, b, steps, c, M);
}

// The rate of the registers alone: the inner loop of gemm_block without its loads.
template <class Mac, int kFlops>
static double multiply_peak(int64_t steps) {
  constexpr int kAccumulators = kRegisters == 32 ? 24 : 12;
  F acc[kAccumulators], x = set1(1e-8f);
  for (int m = 0; m < kAccumulators; m++) acc[m] = set1((float)m);
  for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 24
    for (int m = 0; m < kAccumulators; m++) acc[m] = Mac::mac(acc[m], x, x);
  }
  F sum = zero();
  for (int m = 0; m < kAccumulators; m++) sum = add(sum, acc[m]);
  [[maybe_unused]] volatile float keep[kLanes];
  float lanes[kLanes];
  store(lanes, sum);
  for (int lane = 0; lane < kLanes; lane++) keep[lane] = lanes[lane];
  return (double)steps * kAccumulators * kLanes * kFlops;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
