// The candidates, by the number of query rows and the options of the problem.
#include "metal/plan.h"

#include <algorithm>
#include <limits>

namespace tiny_llm_ext::metal {
namespace {

FastAttentionArguments make_arguments(const Problem& problem, const Tuning& tuning) {
  auto limit = [](int64_t keys) { return static_cast<int32_t>(std::min<int64_t>(keys, kUnboundedWindow)); };
  FastAttentionArguments args = {};
  args.N = static_cast<int32_t>(problem.B * problem.Hq);
  args.heads = static_cast<int32_t>(problem.Hq);
  args.group = static_cast<int32_t>(problem.gqa_heads());
  args.L = static_cast<int32_t>(problem.L);
  args.S = static_cast<int32_t>(problem.S);
  args.E = static_cast<int32_t>(problem.E);
  args.left = limit(problem.left);
  args.right = limit(problem.right);
  args.scale = problem.scale;
  args.softcap = problem.softcap;
  args.keys_per_split = tuning.keys_per_split;
  args.q_lens.given = problem.lengths;  // enough for the choice of a pipeline
  return args;
}

bool is_readable(const Problem& problem) {
  bool masked_at_most = problem.left == kUnbounded && (problem.right == kUnbounded || problem.right == 0) &&
                        problem.softcap == 0 && !problem.sinks && !problem.lengths;
  return problem.dtype == Element::f32 && problem.E <= kReadableAttentionHeadSize && masked_at_most;
}

}  // namespace

std::vector<Plan> make_plans(const Problem& problem, const Tuning& tuning) {
  if (problem.B * problem.Hq > std::numeric_limits<int32_t>::max() || problem.L >= kUnboundedWindow ||
      problem.S >= kUnboundedWindow) {
    return {};
  }
  const FastAttentionArguments args = make_arguments(problem, tuning);
  const bool sinks = problem.sinks;
  // As instantiated in attention.metal: large heads leave fewer registers for keys.
  const int64_t prefill_keys = compiled_head_size(args.E) < 128 ? 32 : 16;
  Plan readable = {true, args, readable_attention(args.N, args.L), {}, 1, kLanes};
  Plan prefill = {false, args,     prefill_attention(args, problem.dtype, problem.mask, sinks),
                  {},    kRowTile, prefill_keys};
  Plan decode = {false, args, decode_attention(args, problem.dtype, problem.mask, sinks),
                 {},    1,    args.keys_per_split};
  if (split_count(args) > 1) decode.merge = merge_attention(args, problem.dtype);

  // In a padded batch, L and S come from the longest sequence, so the choice must not depend on them.
  if (problem.batch_invariant) return {prefill};

  std::vector<Plan> plans = {prefill, decode};
  if (problem.L <= kMostDecodeRows) std::swap(plans[0], plans[1]);
  if (is_readable(problem)) plans.insert(problem.readable ? plans.begin() : plans.end(), readable);
  return plans;
}

}  // namespace tiny_llm_ext::metal
