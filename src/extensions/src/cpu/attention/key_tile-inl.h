// One key tile against one query tile: scores, softmax, output.
#pragma once

#include "cpu/attention/hidden_values-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// An operand of the products, prepared from SourceRows. Strides count their unit: floats (or pairs of
// bfloat16), bytes for AMX.
struct OperandRows {
  const void* data;
  int64_t stride;  // from key to key for K; between reduction steps of the output product for V
  int64_t prefetch_distance = 0;  // to the next key tile, or 0
};

// A tile of keys from logical key `begin` on.
struct KeyTile {
  int64_t begin;
  int keys;
  OperandRows k, v;
  const uint8_t* absent = nullptr;  // as in KeyRows
  // The rows of V where `v` has 0 for values that are not finite, see hidden_values-inl.h.
  const SourceRows* other_values = nullptr;
};

// The transform of the raw scores of the first `count` keys. Fills `limits` and `mask` if it needs them.
static ScoreTransform score_transform(const ForwardTask& task, const KeyTile& keys, const QueryTile& tile,
                                      int count, RowLimits& limits, float* mask) {
  const int64_t begin = keys.begin;
  ScoreTransform transform = {task.scale, task.softcap, nullptr, nullptr, keys.absent};
  if (begin < tile.all_first || begin + count - 1 > tile.all_last) {
    fill_row_limits(tile, begin, count, limits);
    transform.limits = &limits;
  }
  if (task.mask.kind != MaskKind::none) {
    pack_mask(task, tile, begin, count, mask);
    transform.mask = mask;
  }
  return transform;
}

// Floats of the scores of a key tile.
template <class Operands>
constexpr size_t kScoreFloats = (size_t)Operands::kKeyTile * kTileLanes;

// Accumulates the first `count` keys of a key tile into a query tile.
template <class Operands>
static void accumulate_keys(const ForwardTask& task, const KeyTile& keys, QueryTile& tile, int count,
                            float* scores, float* mask) {
  RowLimits limits;
  ScoreTransform transform = score_transform(task, keys, tile, count, limits, mask);
  Operands::scores(tile, keys, count, task.E, scores);
  online_softmax<Operands>(tile, scores, count, task.E, transform);
  Operands::values(tile, keys, count, task.E, scores);
  if (keys.other_values)
    add_other_values<Operands::kElement>(tile, *keys.other_values, count, task.E, transform);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
