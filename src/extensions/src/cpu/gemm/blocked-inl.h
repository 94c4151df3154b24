// Many rows times weights: y (M, N) = x (M, K) w^T as the first product of attention, with x for the queries
// and weight rows for the keys. x is packed once a call, in tiles of kTileLanes rows across the lanes; a
// block of weight rows, some depth of K at a time, is multiplied with several tiles while it is in the cache.
//
// Weights (cpu/gemm/dense_weights-inl.h, cpu/quantized/blocked_bf16-inl.h) give
//   bias(n)                              of output n
//   fill<Product>(n, begin, depth, out, apart)
//                                        weights of output n from element `begin` on, zeros beyond the last,
//                                        in vectors so many weights apart
//   ask_for(n, begin, depth)             brings the memory that `fill` will read into the cache
//   in_place<Product>()                  the rows themselves if they can be multiplied as they lie; else none
#pragma once

#include "cpu/gemm/microkernel-inl.h"
#include "cpu/vec/elements-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kProductTiles = 8;  // row tiles of a task, at most

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The rows and outputs of a task.
struct ProductTask {
  const void* x;
  int64_t x_row_stride;
  void* y;
  int64_t y_row_stride;
  int64_t rows, outputs, K;

  int64_t tiles() const { return (rows + kTileLanes - 1) / kTileLanes; }
  int rows_of(int64_t tile) const {
    int64_t left = rows - tile * kTileLanes;
    return left < kTileLanes ? (int)left : kTileLanes;
  }
  int vectors_of(int64_t tile) const { return (rows_of(tile) + kLanes - 1) / kLanes; }
};

// Weight rows of a block in the unit of a product. Distances count weights.
template <class Weight>
struct WeightRows {
  const Weight* data;
  int64_t stride;
  int64_t vector;  // from one vector of a row to the next
  int64_t tile;    // from kLanes rows to the next ones
  int64_t ahead;   // to what is read next; 0 where it is not asked for
};

// Packed rows of a tile, and those that the product after this one takes.
struct PackedRows {
  const float* data;
  int vectors;
  int64_t apart;  // floats from one vector of rows to the next
  const float* next;

  FollowingBytes following(int steps) const {
    return {(const char*)next, (int64_t)(steps * vectors * kLanes * sizeof(float))};
  }
};

// Products in float32.
struct WideProduct {
  static constexpr int kElementsPerStep = 1;
  static constexpr int kTerms = 1;            // whose sum an element is
  static constexpr int kResultsPerLane = 1;   // neighbouring outputs that `outputs` gives in a lane
  static constexpr int kDepthUnit = 1;        // the depth of a product is a multiple of this
  static constexpr int kOutputUnit = 1;       // likewise the outputs of weights that are multiplied in place
  static constexpr bool kTileByTile = false;  // see below
  static constexpr bool kAsksAhead = true;    // for the next weights by itself, with a single row vector
  static constexpr int kTaskOutputs = 96;     // at most
  static constexpr int kInPlaceTiles = kProductTiles;  // row tiles for which weights are not copied
  static constexpr int kDepth = 128;                   // of a block of weights that are copied
  typedef float Weight;
  typedef FloatMac Mac;

  VEC_FN void enter() {}
  VEC_FN void leave() {}

  // Of a block of weights in place, for row tiles of so many vectors; only where any are.
  static constexpr int in_place_depth(int) { return kDepth; }

  // A term of the elements that a vector holds.
  template <Element kElement>
  VEC_FN F read(const StorageOf<kElement>* row, int64_t count, int = 0) {
    return load_some<kElement>(row, count);
  }

  // What a sum begins with.
  VEC_FN F start(float bias) { return set1(bias); }
  // The sums of an output across the lanes, as they are transposed; and then the outputs of a row.
  VEC_FN F outputs(const float* c, int64_t) { return load(c); }
  template <Element kElement>
  VEC_FN void write(StorageOf<kElement>* y, F x, int64_t count) {
    store_some<kElement>(y, x, count);
  }

  static void multiply(WeightRows<float> w, int outputs, PackedRows x, int depth, float* c) {
    gemm_vectors<Mac, true, Walk::along_rows>(x.vectors, {w.data, w.stride, 1, w.ahead}, x.data, depth, c,
                                              outputs, x.following(depth));
  }
};

// What is packed or copied lies in the order in which a product reads it: [step][lane], all lanes of a tile,
// and a row of weights after the other. With kTileByTile it reads kLanes of either at a time: [vector of
// lanes] [step][lane], and a vector of each of kLanes rows of weights, then their next ones.

// Elements of a row that a vector of packed ones holds.
template <class Product>
constexpr int kElementsOfVector = kLanes * Product::kElementsPerStep;

// Packed vectors of a row: for each kLanes of them all of their first terms, then their second ones, ...
template <class Product>
VEC_FN int64_t product_steps(int64_t K) {
  return round_up(K, Product::kDepthUnit) / Product::kElementsPerStep * Product::kTerms;
}

template <class Product>
VEC_FN int64_t packed_floats(int64_t K) {
  return product_steps<Product>(K) * kTileLanes;
}

template <class Product, Element kElement>
static void pack_product(const ProductTask& task, float* packed) {
  constexpr int kRows = Product::kTileByTile ? kLanes : kTileLanes;  // that are packed together
  const int64_t steps = product_steps<Product>(task.K);
  auto* x = (const StorageOf<kElement>*)task.x;
  for (int64_t m = 0; m < task.rows; m += kRows, packed += steps * kRows) {
    auto read = [&](int row, int step) {
      const int vector = step / kLanes;
      const int64_t begin = (int64_t)(vector / Product::kTerms) * kElementsOfVector<Product>;
      return Product::template read<kElement>(x + (m + row) * task.x_row_stride + begin, task.K - begin,
                                              vector % Product::kTerms);
    };
    const int rows = task.rows - m < kRows ? (int)(task.rows - m) : kRows;
    pack_transposed(rows, (rows + kLanes - 1) / kLanes, (int)steps, packed, read);
  }
}

// Scratch of a task: sums [tile][output][lane] and one block of weights, with room for whole vectors of
// outputs.
template <class Product>
constexpr int kOutputsOfVector = kLanes * Product::kResultsPerLane;

template <class Product>
constexpr int kBlockStride = Product::kDepth * Product::kTerms;

template <class Product>
VEC_FN int64_t sums_of_tile(const ProductTask& task) {
  return round_up(task.outputs, kOutputsOfVector<Product>) * kTileLanes;
}

template <class Product>
static size_t product_bytes(const ProductTask& task) {
  return task.tiles() * sums_of_tile<Product>(task) * sizeof(float) +
         round_up(task.outputs, kOutputsOfVector<Product>) * kBlockStride<Product> *
             sizeof(typename Product::Weight);
}

// y rows of a tile from its sums [output][lane].
template <class Product, Element kElement>
static void finish_tile(const ProductTask& task, int64_t tile, const float* c) {
  const int rows = task.rows_of(tile), vectors = task.vectors_of(tile);
  auto* y = (StorageOf<kElement>*)task.y + tile * kTileLanes * task.y_row_stride;
  for (int v = 0; v < vectors; v++)
    for (int64_t n = 0; n < task.outputs; n += kOutputsOfVector<Product>) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++)
        block[j] = Product::outputs(c + ((n + j * Product::kResultsPerLane) * vectors + v) * kLanes,
                                    vectors * kLanes);
      transpose(block);
      for (int r = v * kLanes; r < rows && r < (v + 1) * kLanes; r++)
        Product::template write<kElement>(y + r * task.y_row_stride + n, block[r % kLanes], task.outputs - n);
    }
}

// The sums begin with the bias.
template <class Product, class Weights>
static void start_sums(const ProductTask& task, const Weights& weights, float* sums) {
  for (int64_t tile = 0; tile < task.tiles(); tile++, sums += sums_of_tile<Product>(task)) {
    float* c = sums;
    for (int64_t n = 0; n < round_up(task.outputs, kOutputsOfVector<Product>); n++) {
      const F bias = Product::start(n < task.outputs ? weights.bias(n) : 0);
      for (int v = 0; v < task.vectors_of(tile); v++, c += kLanes) store(c, bias);
    }
  }
}

// All rows of a block of weights. Tiles read whole ones: there, rows beyond the last output are zero.
template <class Product, class Weights>
static WeightRows<typename Product::Weight> fill_block(const ProductTask& task, const Weights& weights,
                                                       int64_t begin, int depth,
                                                       typename Product::Weight* block) {
  constexpr int64_t kOfVector = kElementsOfVector<Product>, kTile = kLanes * kBlockStride<Product>;
  constexpr int64_t kStride = Product::kTileByTile ? kOfVector : kBlockStride<Product>;
  constexpr int64_t kVector = Product::kTileByTile ? kLanes * kOfVector : kOfVector;
  for (int64_t n = 0; n < (Product::kTileByTile ? round_up(task.outputs, kLanes) : task.outputs); n++) {
    typename Product::Weight* row = block + n / kLanes * kTile + n % kLanes * kStride;
    if (n < task.outputs)
      weights.template fill<Product>(n, begin, depth, row, kVector);
    else
      for (int64_t i = 0; i < depth / kOfVector * Product::kTerms; i++)
        memset(row + i * kVector, 0, kOfVector * sizeof(*row));
  }
  return {block, kStride, kVector, kTile, 0};
}

template <class Product, Element kElement, class Weights>
static void product(const ProductTask& task, const Weights& weights, const float* x, float* sums) {
  typedef typename Product::Weight Weight;
  const int64_t K = round_up(task.K, Product::kDepthUnit), tiles = task.tiles();
  const int64_t tile_sums = sums_of_tile<Product>(task);
  auto* block = (Weight*)(sums + tiles * tile_sums);
  const WeightRows<Weight> in_place = weights.template in_place<Product>();
  const bool asks_ahead = Product::kAsksAhead && in_place.data && tiles == 1 && task.vectors_of(0) == 1;
  const auto packed_at = [&](int64_t tile, int64_t begin) {
    const int64_t lanes = Product::kTileByTile ? kLanes : task.vectors_of(tile) * kLanes;
    return x + tile * packed_floats<Product>(task.K) + product_steps<Product>(begin) * lanes;
  };
  const int64_t apart = Product::kTileByTile ? product_steps<Product>(task.K) * kLanes : kLanes;
  const int block_depth = in_place.data ? Product::in_place_depth(task.vectors_of(0)) : Product::kDepth;
  start_sums<Product>(task, weights, sums);
  Product::enter();
  for (int64_t begin = 0; begin < K; begin += block_depth) {
    const int depth = K - begin < block_depth ? (int)(K - begin) : block_depth;
    const int64_t end = begin + depth, left = task.K - end;
    int64_t ahead = block_depth;
    // Behind the last block tiles ask for the first one of the next task.
    if (Product::kTileByTile && left <= 0) ahead = task.outputs * in_place.stride - begin;
    if (Product::kTileByTile && !asks_ahead) ahead = 0;
    WeightRows<Weight> rows = {};
    if (in_place.data)
      rows = {in_place.data + begin, in_place.stride, in_place.vector, in_place.tile, ahead};
    else
      rows = fill_block<Product>(task, weights, begin, depth, block);
    for (int64_t tile = 0; tile < tiles; tile++) {
      // The next weights come into the cache meanwhile.
      if (!asks_ahead && left > 0)
        for (int64_t n = tile * task.outputs / tiles; n < (tile + 1) * task.outputs / tiles; n++)
          weights.ask_for(n, end, left < block_depth ? (int)left : block_depth);
      // And so do the next rows, at the end the first ones, with which other outputs begin.
      const float* next = tile + 1 < tiles ? packed_at(tile + 1, begin) : packed_at(0, end < K ? end : 0);
      Product::multiply(rows, (int)task.outputs, {packed_at(tile, begin), task.vectors_of(tile), apart, next},
                        depth, sums + tile * tile_sums);
    }
  }
  Product::leave();
  for (int64_t tile = 0; tile < tiles; tile++)
    finish_tile<Product, kElement>(task, tile, sums + tile * tile_sums);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
