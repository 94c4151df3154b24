// Many rows times weights: y (M, N) = x (M, K) w^T as the first product of attention, with x for the queries
// and weight rows for the keys. x is packed once a call, in tiles of kTileLanes rows across the lanes; a
// block of weight rows is widened, some depth of K at a time, and multiplied with several tiles while it is
// in the cache.
#pragma once

#include "cpu/elements-inl.h"
#include "cpu/gemm-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kProductOutputs = 48;  // of a block; whole blocks of every kernel
constexpr int kProductTiles = 8;     // row tiles of a task, at most

// Products in float32.
struct WideProduct {
  static constexpr int kElementsPerStep = 1;
  static constexpr int kDepth = 128;
  typedef float Weight;

  struct Mac {
    VEC_FN F mac(F a, F b, F c) { return fma(a, b, c); }
  };

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  template <Element kElement>
  VEC_FN F read(const StorageOf<kElement>* row, int64_t K, int step) {
    return load_some<kElement>(row + step, K - step);
  }

  // `count` numbers of one group.
  template <int kBits>
  static void widen(const uint8_t* p, int count, F scale, F bias, float* out) {
    for (int e = 0; e < count; e += kLanes, p += kLanes * kBits / 8)
      store(out + e, fma(kBits == 4 ? load_u4(p) : load_u8(p), scale, bias));
  }

  static void multiply(const float* w, const float* x, int vectors, int depth, float* c) {
    gemm_tile<Mac, true>(vectors, 1, {w, kDepth, 1, 0}, x, depth, c, kProductOutputs);
  }
};

// Floats of a packed tile.
template <class Product>
VEC_FN int64_t packed_floats(const QuantizedTask& task) {
  return task.groups * task.group / Product::kElementsPerStep * kTileLanes;
}

template <class Product, Element kElement>
static void pack_product(const QuantizedTask& task, float* packed) {
  const int64_t K = task.groups * task.group;
  auto* x = (const StorageOf<kElement>*)task.x;
  for (int64_t m = 0; m < task.rows; m += kTileLanes, packed += packed_floats<Product>(task)) {
    int rows = task.rows - m < kTileLanes ? (int)(task.rows - m) : kTileLanes;
    pack_transposed(rows, (rows + kLanes - 1) / kLanes, (int)(K / Product::kElementsPerStep), packed,
                    [&](int row, int step) {
                      return Product::template read<kElement>(x + (m + row) * task.x_row_stride, K, step);
                    });
  }
}

template <class Product>
static size_t product_floats() {
  return kProductOutputs * (kProductTiles * kTileLanes + Product::kDepth);
}

// Weights of all outputs of the block, from element `begin` on; outputs beyond the last are zero.
template <class Product, Element kElement, int kBits>
static void widen_block(const QuantizedTask& task, int64_t begin, int depth,
                        typename Product::Weight* block) {
  for (int n = 0; n < kProductOutputs; n++, block += Product::kDepth) {
    if (n >= task.outputs) {
      memset(block, 0, depth * sizeof(*block));
      continue;
    }
    auto* words = (const uint8_t*)(task.w + n * task.w_row_stride);
    auto* scales = (const StorageOf<kElement>*)task.scales + n * task.scales_row_stride;
    auto* biases = (const StorageOf<kElement>*)task.biases + n * task.biases_row_stride;
    for (int e = 0; e < depth; e += task.group) {
      int64_t g = (begin + e) / task.group;
      Product::template widen<kBits>(words + (begin + e) * kBits / 8, task.group,
                                     fill_from<kElement>(scales + g), fill_from<kElement>(biases + g),
                                     block + e);
    }
  }
}

// y rows of a tile from its sums [output][lane].
template <Element kElement>
static void finish_tile(const QuantizedTask& task, int64_t m, int rows, const float* c) {
  const int vectors = (rows + kLanes - 1) / kLanes;
  for (int v = 0; v < vectors; v++)
    for (int64_t n = 0; n < task.outputs; n += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = load(c + ((n + j) * vectors + v) * kLanes);
      transpose(block);
      for (int r = v * kLanes; r < rows && r < (v + 1) * kLanes; r++)
        store_some<kElement>((StorageOf<kElement>*)task.y + (m + r) * task.y_row_stride + n,
                             block[r % kLanes], task.outputs - n);
    }
}

template <class Product, Element kElement, int kBits>
static void product(const QuantizedTask& task, const float* x, float* sums) {
  const int64_t K = task.groups * task.group;
  auto* weights = (typename Product::Weight*)(sums + kProductOutputs * kProductTiles * kTileLanes);
  const int64_t tiles = (task.rows + kTileLanes - 1) / kTileLanes;
  memset(sums, 0, tiles * kProductOutputs * kTileLanes * sizeof(float));
  auto rows_of = [&](int64_t tile) {
    int64_t rows = task.rows - tile * kTileLanes;
    return rows < kTileLanes ? (int)rows : kTileLanes;
  };
  Product::enter();
  for (int64_t begin = 0; begin < K; begin += Product::kDepth) {
    int depth = K - begin < Product::kDepth ? (int)(K - begin) : Product::kDepth;
    widen_block<Product, kElement, kBits>(task, begin, depth, weights);
    for (int64_t tile = 0; tile < tiles; tile++) {
      int vectors = (rows_of(tile) + kLanes - 1) / kLanes;
      Product::multiply(
          weights,
          x + tile * packed_floats<Product>(task) + begin / Product::kElementsPerStep * vectors * kLanes,
          vectors, depth, sums + tile * kProductOutputs * kTileLanes);
    }
  }
  Product::leave();
  for (int64_t tile = 0; tile < tiles; tile++)
    finish_tile<kElement>(task, tile * kTileLanes, rows_of(tile), sums + tile * kProductOutputs * kTileLanes);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
