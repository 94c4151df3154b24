// Kernel, grid and arguments of a launch of the quantized product, for the dispatch and for the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "core/element.h"
#include "metal/launch.h"
#include "metal/quantized/arguments.h"

namespace tiny_llm_ext::metal {

// Indices in the last tile, which may extend beyond the rows or outputs, must fit an int32.
constexpr int64_t kMostQuantized = std::numeric_limits<int32_t>::max() - kTileOutputs;

// The kernel for M rows and N outputs, each 1 to kMostQuantized; bits are 4 or 8.
inline Launch quantized_matmul(int32_t M, int32_t N, int bits, Element element) {
  auto divide_up = [](int32_t size, int32_t part) { return static_cast<uint32_t>((size + part - 1) / part); };
  constexpr const char* kElements[] = {"f32", "f16", "bf16"};
  const std::string format = std::string(kElements[static_cast<int>(element)]) + "_b" + std::to_string(bits);
  if (M > kFewRows) {
    return {"quantized_many_rows_" + format,
            {divide_up(N, kTileOutputs), divide_up(M, kTileRows), 1},
            {kLanes, kTileSimdGroups, 1}};
  }
  return {(M == 1 ? "quantized_one_row_" : "quantized_few_rows_") + format,
          {divide_up(N, kFewSimdGroups * kFewOutputs), 1, 1},
          {kLanes, kFewSimdGroups, 1}};
}

// group_size is 32, 64 or 128.
inline QuantizedArguments quantized_arguments(int32_t M, int32_t N, int32_t K, int group_size) {
  return {M, N, K, group_size / kChunk / 2};
}

// The GPU reads the struct as bytes, by these offsets.
static_assert(offsetof(QuantizedArguments, M) == 0);
static_assert(offsetof(QuantizedArguments, N) == 4);
static_assert(offsetof(QuantizedArguments, K) == 8);
static_assert(offsetof(QuantizedArguments, group_shift) == 12);

}  // namespace tiny_llm_ext::metal
