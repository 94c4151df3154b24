// One pass where its long tasks keep all threads busy.
#include "cpu/attention/backward/backward_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "attention/support.h"
#include "attention/tiles.h"
#include "core/saturating.h"
#include "cpu/interface/kernels.h"

namespace tiny_llm_ext::cpu {
namespace {

// Of one pass: the work of the busiest thread, as a multiple of the mean. One pass has five products for each
// visible pair, two passes have seven; measured on one thread, two passes take 1.22 (scalar), 1.27 (avx2) and
// 1.4 times (avx512) as long.
constexpr double kMaxImbalance = 1.2;

double imbalance_of_equal(double tasks, int threads) {
  return tasks == 0 ? 1 : std::ceil(tasks / threads) * threads / tasks;
}

// Each task goes to the first free thread.
double imbalance(const std::vector<double>& tasks, int threads) {
  std::vector<double> busy(threads);  // a heap, the least busy thread in front
  double total = 0;
  for (const double task : tasks) {
    std::pop_heap(busy.begin(), busy.end(), std::greater<>());
    busy.back() += task;
    std::push_heap(busy.begin(), busy.end(), std::greater<>());
    total += task;
  }
  return total == 0 ? 1 : *std::max_element(busy.begin(), busy.end()) * threads / total;
}

// Score tiles of a KV head of each sequence.
std::vector<double> work_of_sequences(const Problem& problem) {
  const auto& kernel = problem.kernels->attention[static_cast<int>(problem.dtype)].backward_dqkv;
  std::vector<double> work;
  for (const Sequence& s : problem.sequences) {
    const TileCounts tiles = count_tiles(s.q_rows, s.k_rows, s.n_q, s.n_k, problem.gqa_heads(),
                                         kernel.row_tile, kernel.key_tile, problem.left, problem.right);
    work.push_back(static_cast<double>(tiles.visited));
  }
  return work;
}

}  // namespace

const char* name_of(BackwardSchedule schedule) {
  return schedule == BackwardSchedule::one_pass ? "one_pass" : "two_passes";
}

BackwardPlan make_backward_plan(const Problem& problem) {
  BackwardPlan plan = {};
  // In pages, the gradients of keys wait in memory of their own, to be summed after their pass.
  if (problem.paged || !fused_kernel(problem, "backward_dqkv").ok) return plan;
  const std::vector<double> work = work_of_sequences(problem);
  plan.order.resize(work.size());
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::stable_sort(plan.order.begin(), plan.order.end(),
                   [&](int64_t a, int64_t b) { return work[a] > work[b]; });
  std::vector<double> tasks;
  for (const int64_t n : plan.order) tasks.insert(tasks.end(), problem.Hkv, work[n]);
  // A rectangle's schedule depends on its shape only: explain() names it before lengths are known.
  const bool by_shape = !problem.packed || work.empty();
  const double busiest =
      by_shape ? imbalance_of_equal(static_cast<double>(saturating_product({problem.B, problem.Hkv})),
                                    problem.threads.prompts)
               : imbalance(tasks, problem.threads.prompts);
  plan.schedule = busiest <= kMaxImbalance ? BackwardSchedule::one_pass : BackwardSchedule::two_passes;
  return plan;
}

}  // namespace tiny_llm_ext::cpu
