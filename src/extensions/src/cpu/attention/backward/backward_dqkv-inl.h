// All gradients of a KV head in one pass: S and dP are computed once, so that a visible pair costs five
// products instead of the seven of two passes. dK and dV are accumulated as in their own pass; dQ is
// accumulated in its output, key tile by key tile, which needs float32.
//
// Each sum has the order of two passes, so that the bits are the same.
#pragma once

#include "cpu/attention/backward/backward_dkv-inl.h"
#include "cpu/attention/backward/float_products-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

VEC_FN float* dq_row(const BackwardTask& task, int64_t row) {
  return (float*)task.dq.data + (row / task.gqa_heads) * task.dq.row_stride +
         (row % task.gqa_heads) * task.dq.head_stride;
}

// dQ of a streamed tile of query rows, and the keys of a block in the layout of its product. Both are cut
// into panels of at most kTileLanes elements of the head dimension: [panel][row or key][elements].
template <class Products>
struct QueryGradient {
  int E;
  float *dq, *keys;

  static constexpr size_t floats(int E) {
    return (Products::kStreamRows + Products::kLaneTilesPerTask * kTileLanes) * padded(E);
  }

  // run(first element of a panel, its vectors)
  template <class Run>
  inline __attribute__((always_inline)) void for_each_panel(Run run) const {
    for (int e = 0; e < E; e += kTileLanes) {
      const int width = padded(E) - e;
      run(e, (width < kTileLanes ? width : kTileLanes) / kLanes);
    }
  }

  void pack_keys(const BackwardTask& task, int t, const LaneTile& lanes) const {
    for_each_panel([&](int e, int vectors) __attribute__((always_inline)) {
      float* out = keys_of(t) + e * kTileLanes;
      for (int key = 0; key < lanes.count; key++) {
        const float* row = (const float*)task.k.data + (lanes.begin + key) * task.k.row_stride;
        for (int v = 0; v < vectors; v++, out += kLanes)
          store(out, load_some<Element::f32>(row + e + v * kLanes, E - e - v * kLanes));
      }
    });
  }

  void load_rows(const BackwardTask& task, int64_t begin, int count) const {
    for_each_panel([&](int e, int vectors) __attribute__((always_inline)) {
      float* out = dq + e * Products::kStreamRows;
      for (int j = 0; j < count; j++)
        for (int v = 0; v < vectors; v++, out += kLanes)
          store(out, load_some<Element::f32>(dq_row(task, begin + j) + e + v * kLanes, E - e - v * kLanes));
    });
  }

  void store_rows(const BackwardTask& task, int64_t begin, int count) const {
    for_each_panel([&](int e, int vectors) __attribute__((always_inline)) {
      const float* from = dq + e * Products::kStreamRows;
      for (int j = 0; j < count; j++)
        for (int v = 0; v < vectors; v++, from += kLanes)
          store_some<Element::f32>(dq_row(task, begin + j) + e + v * kLanes, load(from), E - e - v * kLanes);
    });
  }

  // dQ += dS K for the first `count` rows; `ds` is [row][lane].
  void accumulate(int t, const LaneTile& lanes, int count, const float* ds) const {
    for_each_panel([&](int e, int vectors) __attribute__((always_inline)) {
      gemm_vectors<FloatMac, true, LayoutA::row_major>(vectors, {ds, lanes.lanes(), 1, 0},
                                                       keys_of(t) + e * kTileLanes, lanes.count,
                                                       dq + e * Products::kStreamRows, count);
    });
  }

 private:
  float* keys_of(int t) const { return keys + (size_t)t * kTileLanes * padded(E); }
};

// The keys that share a prepared tile of query rows.
template <class Products>
constexpr int64_t kBlockKeys = Products::kLaneTilesPerTask * kTileLanes;

template <class Products>
static size_t dqkv_scratch_bytes(int32_t E, int64_t) {
  return backward_scratch_bytes<Products, 2>(E, kBlockKeys<Products>) +
         QueryGradient<Products>::floats(E) * sizeof(float);
}

template <class Products>
static int64_t backward_dqkv(const BackwardTask& task, void* scratch) {
  const int64_t valid_rows = task.n_q * task.gqa_heads;
  const size_t row_bytes = task.E * sizeof(float);
  for (int64_t row = task.begin; row < task.end; row++) memset(dq_row(task, row), 0, row_bytes);

  float* memory = (float*)scratch + backward_scratch_bytes<Products, 2>(task.E, kBlockKeys<Products>) / 4;
  const QueryGradient<Products> dq = {task.E, memory, memory + Products::kStreamRows * padded(task.E)};
  int64_t computed = 0;
  for (int64_t begin = 0; begin < task.n_k; begin += kBlockKeys<Products>) {
    BackwardTask block = task;
    block.begin = begin, block.end = begin + kBlockKeys<Products>;
    computed += accumulate_rows<Products>(block, scratch, dq);
  }

  for (int64_t row = task.begin; row < task.end && row < valid_rows; row++) {
    float* out = dq_row(task, row);
    // A hidden key with a value of NaN makes a NaN of P = 0.
    if (!row_state(task, row).takes_part()) {
      memset(out, 0, row_bytes);
      continue;
    }
    for (int e = 0; e < task.E; e += kLanes) {
      const F sum = load_some<Element::f32>(out + e, task.E - e);
      store_some<Element::f32>(out + e, mul(sum, set1(task.scale)), task.E - e);
    }
  }
  return computed;
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
