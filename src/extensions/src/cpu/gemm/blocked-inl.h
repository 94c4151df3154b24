// Blocked GEMM: y (M, N) = x (M, K) w^T. x is packed once a call, in tiles of kTileLanes rows, rows across
// the lanes. A block of weights, NC outputs by KC elements, is packed or read in place, and multiplied with
// all row tiles of a task while it is in the cache. In the terms of BLIS:
//   MC   rows of a task: at most kMC
//   NC   outputs of a task: at most Arithmetic::kNC
//   KC   Arithmetic::kKC; in_place_kc(vectors) for weights that are read in place by tiles of so many vectors
//   MR x NR  in microkernel-inl.h, where M is the outputs and N the rows of x
//
// An Arithmetic (arithmetic_*-inl.h) is the format of packed operands and their microkernel:
//   Weight                  type of packed weights
//   kElementsPerStep        elements of K in a 32-bit lane
//   kParts                  split bf16 parts of an element (split_bf16-inl.h)
//   kDepthUnit              KC is a multiple of it
//   kOutputUnit             NC is a multiple of it if weights are read in place
//   kPackedByVector         order of packed operands, see below
//   kInPlaceTiles           weights are read in place for up to so many row tiles
//   kPrefetches             the microkernel prefetches weights if a task has one vector of rows
//   read(row, count, part)  a vector of elements; of split bf16, one part of them
//   initial_sum(bias)
//   multiply(...)           the microkernel, between enter() and leave()
//   epilogue_load           sums of outputs before the transposition
//   epilogue_store          a row of y after it
//   kOutputsPerLane         2 if epilogue_load packs two bfloat16 outputs into a lane
//
// Weights (dense_weights-inl.h, cpu/quantized/blocked_bf16-inl.h) are the codec:
//   bias(n)                            of output n
//   fill<Arithmetic>(n, begin, depth, out, vector_stride)
//                                      packs weights of output n from element `begin` on, zeros beyond the
//                                      last, one vector every `vector_stride` weights
//   prefetch_block(n, begin, depth)    prefetches what `fill` will read
//   in_place<Arithmetic>()             the rows themselves if they can be multiplied as they lie, else null
#pragma once

#include "core/divide_up.h"
#include "cpu/gemm/microkernel-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kTaskTiles = 8;  // row tiles of a task, at most
constexpr int kMC = kTaskTiles * kTileLanes;

// The rows and outputs of a task.
struct GemmTask {
  const void* x;
  int64_t x_row_stride;
  void* y;
  int64_t y_row_stride;
  int64_t rows, outputs, K;

  int64_t tiles() const { return divide_up(rows, kTileLanes); }
  int rows_of(int64_t tile) const {
    int64_t left = rows - tile * kTileLanes;
    return left < kTileLanes ? (int)left : kTileLanes;
  }
  int vectors_of(int64_t tile) const { return (rows_of(tile) + kLanes - 1) / kLanes; }
};

// A block of weights as the arithmetic reads it. Distances count weights.
template <class Weight>
struct WeightBlock {
  const Weight* data;
  int64_t stride;
  int64_t vector_stride;      // from one vector of a row to the next
  int64_t tile_stride;        // from kLanes rows to the next ones
  int64_t prefetch_distance;  // to the next block; 0: no prefetch
};

// A packed tile of x, and the packed rows that are read next.
struct PackedPanel {
  const float* data;
  int vectors;
  int64_t vector_stride;  // floats from one vector of rows to the next
  const float* next;

  PrefetchBytes prefetch(int steps) const {
    return {(const char*)next, (int64_t)(steps * vectors * kLanes * sizeof(float))};
  }
};

// Packed layouts, as the microkernel reads them:
//                     a tile of x                     weights
//   default           [step][lane of the tile]        [output][step]
//   kPackedByVector   [vector of rows][step][lane]    [tile of kLanes outputs][vector of steps][output][step]

// Elements of K in a packed vector.
template <class Arithmetic>
constexpr int kElementsOfVector = kLanes * Arithmetic::kElementsPerStep;

// Packed vectors of a row. Split bf16: kLanes vectors of first parts, then of second parts, ...
template <class Arithmetic>
VEC_FN int64_t packed_steps(int64_t K) {
  return round_up(K, Arithmetic::kDepthUnit) / Arithmetic::kElementsPerStep * Arithmetic::kParts;
}

template <class Arithmetic>
VEC_FN int64_t packed_floats(int64_t K) {
  return packed_steps<Arithmetic>(K) * kTileLanes;
}

// Rows that are packed together; a task may begin to pack at any multiple of them.
template <class Arithmetic>
constexpr int kPackRows = Arithmetic::kPackedByVector ? kLanes : kTileLanes;

template <class Arithmetic>
VEC_FN size_t packed_blocked_bytes(const GemmTask& task) {
  return round_up(task.rows, kPackRows<Arithmetic>) * packed_steps<Arithmetic>(task.K) * sizeof(float);
}

// Packs the elements `begin` to `end` of each row: from the first of a packed vector to that of another, or
// to K.
template <class Arithmetic, Element kElement>
static void pack_blocked(const GemmTask& task, float* packed, int64_t begin, int64_t end) {
  constexpr int kRows = kPackRows<Arithmetic>;
  const int64_t steps = packed_steps<Arithmetic>(task.K);
  const int64_t first = packed_steps<Arithmetic>(begin);
  const int64_t count = packed_steps<Arithmetic>(end) - first;
  auto* x = (const StorageOf<kElement>*)task.x;
  for (int64_t m = 0; m < task.rows; m += kRows, packed += steps * kRows) {
    auto read = [&](int row, int step) {
      const int vector = step / kLanes;
      const int64_t at = begin + (int64_t)(vector / Arithmetic::kParts) * kElementsOfVector<Arithmetic>;
      return Arithmetic::template read<kElement>(x + (m + row) * task.x_row_stride + at, task.K - at,
                                                 vector % Arithmetic::kParts);
    };
    const int rows = task.rows - m < kRows ? (int)(task.rows - m) : kRows;
    const int vectors = (rows + kLanes - 1) / kLanes;
    pack_transposed(rows, vectors, (int)count, packed + first * vectors * kLanes, read);
  }
}

// Outputs of a vector of the epilogue.
template <class Arithmetic>
constexpr int kOutputsOfVector = kLanes * Arithmetic::kOutputsPerLane;

template <class Arithmetic>
constexpr int kBlockStride = Arithmetic::kKC * Arithmetic::kParts;

template <class Arithmetic>
VEC_FN int64_t sums_of_tile(const GemmTask& task) {
  return round_up(task.outputs, kOutputsOfVector<Arithmetic>) * kTileLanes;
}

// Sums [tile][output][lane] and one packed block of weights, in whole vectors of outputs.
template <class Arithmetic>
static size_t blocked_scratch_bytes(const GemmTask& task) {
  return task.tiles() * sums_of_tile<Arithmetic>(task) * sizeof(float) +
         round_up(task.outputs, kOutputsOfVector<Arithmetic>) * kBlockStride<Arithmetic> *
             sizeof(typename Arithmetic::Weight);
}

// Epilogue of a tile: rows of y from sums [output][lane].
template <class Arithmetic, Element kElement>
static void store_output_tile(const GemmTask& task, int64_t tile, const float* c) {
  const int rows = task.rows_of(tile), vectors = task.vectors_of(tile);
  auto* y = (StorageOf<kElement>*)task.y + tile * kTileLanes * task.y_row_stride;
  for (int v = 0; v < vectors; v++)
    for (int64_t n = 0; n < task.outputs; n += kOutputsOfVector<Arithmetic>) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++)
        block[j] = Arithmetic::epilogue_load(
            c + ((n + j * Arithmetic::kOutputsPerLane) * vectors + v) * kLanes, vectors * kLanes);
      transpose(block);
      for (int r = v * kLanes; r < rows && r < (v + 1) * kLanes; r++)
        Arithmetic::template epilogue_store<kElement>(y + r * task.y_row_stride + n, block[r % kLanes],
                                                      task.outputs - n);
    }
}

// The sums begin with the bias.
template <class Arithmetic, class Weights>
static void initialise_sums(const GemmTask& task, const Weights& weights, float* sums) {
  for (int64_t tile = 0; tile < task.tiles(); tile++, sums += sums_of_tile<Arithmetic>(task)) {
    float* c = sums;
    for (int64_t n = 0; n < round_up(task.outputs, kOutputsOfVector<Arithmetic>); n++) {
      const F bias = Arithmetic::initial_sum(n < task.outputs ? weights.bias(n) : 0);
      for (int v = 0; v < task.vectors_of(tile); v++, c += kLanes) store(c, bias);
    }
  }
}

// Packs a block of weights. AMX tiles read kLanes rows: rows beyond the last output are zero.
template <class Arithmetic, class Weights>
static WeightBlock<typename Arithmetic::Weight> pack_weights(const GemmTask& task, const Weights& weights,
                                                             int64_t begin, int depth,
                                                             typename Arithmetic::Weight* block) {
  constexpr int64_t kOfVector = kElementsOfVector<Arithmetic>, kTile = kLanes * kBlockStride<Arithmetic>;
  constexpr int64_t kStride = Arithmetic::kPackedByVector ? kOfVector : kBlockStride<Arithmetic>;
  constexpr int64_t kVector = Arithmetic::kPackedByVector ? kLanes * kOfVector : kOfVector;
  for (int64_t n = 0; n < (Arithmetic::kPackedByVector ? round_up(task.outputs, kLanes) : task.outputs);
       n++) {
    typename Arithmetic::Weight* row = block + n / kLanes * kTile + n % kLanes * kStride;
    if (n < task.outputs)
      weights.template fill<Arithmetic>(n, begin, depth, row, kVector);
    else
      for (int64_t i = 0; i < depth / kOfVector * Arithmetic::kParts; i++)
        memset(row + i * kVector, 0, kOfVector * sizeof(*row));
  }
  return {block, kStride, kVector, kTile, 0};
}

template <class Arithmetic, Element kElement, class Weights>
static void blocked_gemm(const GemmTask& task, const Weights& weights, const float* x, float* sums) {
  typedef typename Arithmetic::Weight Weight;
  const int64_t K = round_up(task.K, Arithmetic::kDepthUnit), tiles = task.tiles();
  const int64_t tile_sums = sums_of_tile<Arithmetic>(task);
  auto* block = (Weight*)(sums + tiles * tile_sums);
  const WeightBlock<Weight> in_place = weights.template in_place<Arithmetic>();
  const bool prefetches = Arithmetic::kPrefetches && in_place.data && tiles == 1 && task.vectors_of(0) == 1;
  const auto packed_at = [&](int64_t tile, int64_t begin) {
    const int64_t lanes = Arithmetic::kPackedByVector ? kLanes : task.vectors_of(tile) * kLanes;
    return x + tile * packed_floats<Arithmetic>(task.K) + packed_steps<Arithmetic>(begin) * lanes;
  };
  const int64_t vector_stride =
      Arithmetic::kPackedByVector ? packed_steps<Arithmetic>(task.K) * kLanes : kLanes;
  const int block_depth = in_place.data ? Arithmetic::in_place_kc(task.vectors_of(0)) : Arithmetic::kKC;
  initialise_sums<Arithmetic>(task, weights, sums);
  Arithmetic::enter();
  for (int64_t begin = 0; begin < K; begin += block_depth) {
    const int depth = K - begin < block_depth ? (int)(K - begin) : block_depth;
    const int64_t end = begin + depth, left = task.K - end;
    int64_t prefetch_distance = block_depth;
    // AMX: the last block of K prefetches the first block of the next task's outputs.
    if (Arithmetic::kPackedByVector && left <= 0) prefetch_distance = task.outputs * in_place.stride - begin;
    if (Arithmetic::kPackedByVector && !prefetches) prefetch_distance = 0;
    WeightBlock<Weight> rows = {};
    if (in_place.data)
      rows = {in_place.data + begin, in_place.stride, in_place.vector_stride, in_place.tile_stride,
              prefetch_distance};
    else
      rows = pack_weights<Arithmetic>(task, weights, begin, depth, block);
    for (int64_t tile = 0; tile < tiles; tile++) {
      // Prefetches the next block of weights.
      if (!prefetches && left > 0)
        for (int64_t n = tile * task.outputs / tiles; n < (tile + 1) * task.outputs / tiles; n++)
          weights.prefetch_block(n, end, left < block_depth ? (int)left : block_depth);
      // The rows of x that are read next: of the next tile, else of the first tile in the next block.
      const float* next = tile + 1 < tiles ? packed_at(tile + 1, begin) : packed_at(0, end < K ? end : 0);
      Arithmetic::multiply(rows, (int)task.outputs,
                           {packed_at(tile, begin), task.vectors_of(tile), vector_stride, next}, depth,
                           sums + tile * tile_sums);
    }
  }
  Arithmetic::leave();
  for (int64_t tile = 0; tile < tiles; tile++)
    store_output_tile<Arithmetic, kElement>(task, tile, sums + tile * tile_sums);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
