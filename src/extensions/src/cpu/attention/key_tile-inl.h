// What one key tile does to a query tile that sees it.
#pragma once

#include "cpu/attention/online_softmax-inl.h"
#include "cpu/attention/pages-inl.h"

namespace tiny_llm_ext::cpu::TINY_LLM_ISA {

// One tile of keys from logical key `begin` on. v.stride leads from one reduction step of the output product
// to the next.
struct KeyTile {
  int64_t begin;
  int keys;
  Rows k, v;
};

// What happens to the raw scores of the first `count` keys; fills `limits` and `mask` where they are needed.
static ScoreSteps score_steps(const ForwardTask& task, int64_t begin, const RowTile& tile, int count,
                              Limits& limits, float* mask) {
  ScoreSteps steps = {task.scale, task.softcap, nullptr, nullptr};
  if (begin < tile.every_first || begin + count - 1 > tile.every_last) {
    relative_limits(tile, begin, count, limits);
    steps.limits = &limits;
  }
  if (task.mask.kind != MaskKind::none) {
    pack_mask(task, tile, begin, count, mask);
    steps.mask = mask;
  }
  return steps;
}

// Floats of one tile of scores.
template <class Format>
constexpr size_t kScoreFloats = (size_t)Format::kKeyTile * kTileLanes;

// Folds the first `count` keys of a key tile into one query tile.
template <class Format>
static void attend(const ForwardTask& task, const KeyTile& keys, RowTile& tile, int count, float* scores,
                   float* mask) {
  Limits limits;
  ScoreSteps steps = score_steps(task, keys.begin, tile, count, limits, mask);
  Format::scores(tile, keys, count, task.E, scores);
  online_softmax<Format>(tile, scores, count, task.E, steps);
  Format::values(tile, keys, count, task.E, scores);
}

}  // namespace tiny_llm_ext::cpu::TINY_LLM_ISA
