// What products of few rows share, whatever their weights are: the lanes run along K, and a sum is as many
// partial sums as there are lanes.
#pragma once

#include "cpu/product-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

constexpr int kStreamedRows = 8;                       // at most
constexpr int kRowsAtOnce = kRegisters == 32 ? 8 : 4;  // that share a widened weight
constexpr size_t kStreamedBytes = 24 * 1024;           // of x, so that it stays in the first-level cache

// y from the sums, kLanes outputs at a time: the sums of a block are added up across their lanes by
// transposing it.
template <Element kElement>
static void finish_sums(const ProductTask& task, const float* sums, int64_t stride) {
  for (int64_t m = 0; m < task.rows; m++) {
    auto* y = (StorageOf<kElement>*)task.y + m * task.y_row_stride;
    for (int64_t n = 0; n < task.outputs; n += kLanes) {
      F block[kLanes];
      for (int j = 0; j < kLanes; j++) block[j] = load(sums + (n + j) * stride + m * kLanes);
      transpose(block);
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) block[j] = add(block[j], block[j + half]);
      store_some<kElement>(y + n, block[0], task.outputs - n);
    }
  }
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
