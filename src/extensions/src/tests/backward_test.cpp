// The backward kernels of one instruction set against gradients by definition, in memory with guard pages.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "backward_case.h"
#include "case_memory.h"
#include "check.h"
#include "cpu/interface/isa.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::tests {
namespace {

using cpu::AttentionKernels;
using cpu::BackwardTask;
using BackwardPass = cpu::PassKernel<BackwardTask>;

// The arrays of a case, and the task without its range of rows or keys.
class BackwardMemory {
 public:
  explicit BackwardMemory(const BackwardCase& c)
      : c_(c),
        rows_(c.gqa_heads, c.L, c.E, c.query_gap, c.heads_outside),
        keys_(1, c.n_k, c.E, c.key_gap, true),
        lse_rows_(c.gqa_heads, c.L, 1, 0, c.heads_outside),
        d_lse_rows_(c.gqa_heads, c.L, 1, 2, c.heads_outside),
        q_(write(rows_, c.element, c.guard, c.q)),
        o_(write(rows_, c.element, c.guard, c.o)),
        d_o_(write(rows_, c.element, c.guard, c.d_o)),
        k_(write(keys_, c.element, c.guard, c.k)),
        v_(write(keys_, c.element, c.guard, c.v)),
        lse_(write(lse_rows_, Element::f32, c.guard, c.lse)),
        d_lse_(write(d_lse_rows_, Element::f32, c.guard, c.d_lse)),
        delta_(c.lse.size() * sizeof(float), c.guard),
        dq_(rows_.extent() * bytes_of(c.element), c.guard),
        dk_(keys_.extent() * bytes_of(c.element), c.guard),
        dv_(keys_.extent() * bytes_of(c.element), c.guard),
        mask_(c) {
    const auto rows_in = [this](const Guarded& memory) {
      return cpu::HeadMatrix{memory.as<void>(), rows_.head_stride, rows_.row_stride};
    };
    task_ = {.q = rows_in(q_),
             .o = rows_in(o_),
             .d_o = rows_in(d_o_),
             .k = {k_.as<void>(), 0, keys_.row_stride},
             .v = {v_.as<void>(), 0, keys_.row_stride},
             .lse = lse_.as<float>(),
             .lse_head_stride = lse_rows_.head_stride,
             .lse_row_stride = lse_rows_.row_stride,
             .d_lse = d_lse_.as<float>(),
             .d_lse_head_stride = d_lse_rows_.head_stride,
             .d_lse_row_stride = d_lse_rows_.row_stride,
             .delta = delta_.as<float>(),
             .delta_head_stride = c.L,
             .mask = mask_.view,
             .dq = {dq_.as<void>(), rows_.head_stride, rows_.row_stride},
             .dk = {dk_.as<void>(), 0, keys_.row_stride},
             .dv = {dv_.as<void>(), 0, keys_.row_stride},
             .float_dkv = false,
             .E = c.E,
             .gqa_heads = c.gqa_heads,
             .begin = 0,
             .end = 0,
             .n_q = c.n_q,
             .n_k = c.n_k,
             .left = c.left,
             .right = c.right,
             .scale = c.scale,
             .softcap = c.softcap,
             .pages = {}};
  }

  void put_keys_into(const PagedKeys& pages) {
    task_.k = {pages.k(), 0, c_.E}, task_.v = {pages.v(), 0, c_.E};
    task_.pages = pages.table();
  }

  // The task as tasks of `step` rows or keys.
  std::vector<BackwardTask> cut(int64_t extent, int64_t step) const {
    std::vector<BackwardTask> tasks;
    for (int64_t begin = 0; begin < extent; begin += step) {
      tasks.push_back(task_);
      tasks.back().begin = begin, tasks.back().end = std::min(begin + step, extent);
    }
    return tasks;
  }

  double dq(int64_t n) const {
    return get(dq_, c_.element, rows_.at(n / c_.E / c_.L, n / c_.E % c_.L, n % c_.E));
  }
  double dk(int64_t n) const { return get(dk_, c_.element, keys_.at(0, n / c_.E, n % c_.E)); }
  double dv(int64_t n) const { return get(dv_, c_.element, keys_.at(0, n / c_.E, n % c_.E)); }
  double delta(int64_t row) const { return delta_.as<float>()[row]; }

  // The bytes of the gradients, including gaps.
  std::string bytes() const {
    const size_t element = bytes_of(c_.element);
    return std::string(dq_.as<char>(), rows_.extent() * element) +
           std::string(dk_.as<char>(), keys_.extent() * element) +
           std::string(dv_.as<char>(), keys_.extent() * element);
  }

 private:
  const BackwardCase& c_;
  Layout rows_, keys_, lse_rows_, d_lse_rows_;
  Guarded q_, o_, d_o_, k_, v_, lse_, d_lse_, delta_, dq_, dk_, dv_;
  MaskMemory mask_;
  BackwardTask task_;
};

// Runs the tasks on two threads, each with scratch_bytes() of memory; returns the tiles computed.
int64_t run(const BackwardPass& pass, const std::vector<BackwardTask>& tasks) {
  std::vector<int64_t> tiles(tasks.size());
  cpu::parallel_for(tasks.size(), 2, [&](int64_t n) {
    Guarded scratch(pass.scratch_bytes(tasks[n].E, tasks[n].end - tasks[n].begin), Guard::after, 64);
    tiles[n] = pass.run(tasks[n], scratch.as<void>());
  });
  return std::accumulate(tiles.begin(), tiles.end(), int64_t{0});
}

template <class Got>
void compare(const std::string& what, const std::vector<double>& expected, const std::vector<double>& error,
             Got got) {
  for (size_t n = 0; n < expected.size(); ++n) {
    if (!near(got(n), expected[n], error[n])) {
      check(false, what + "[" + std::to_string(n) + "]: " + std::to_string(got(n)) + ", expected " +
                       std::to_string(expected[n]) + " within " + std::to_string(error[n] * 1e6) + "e-6");
      return;
    }
  }
  check(true, what);
}

// All passes of a case, with `tiles` tiles per task at most. Checks the tile counts.
void run_passes(const AttentionKernels& kernels, const BackwardCase& c, const BackwardMemory& memory,
                int tiles) {
  const int64_t rows = c.L * c.gqa_heads;
  for (const BackwardTask& task : memory.cut(rows, 100)) kernels.backward_delta(task);
  for (const BackwardPass* pass : {&kernels.backward_dq, &kernels.backward_dkv}) {
    const bool rows_in_lanes = pass == &kernels.backward_dq;
    const int per_task = std::min(tiles, pass->tiles_per_task);
    const int64_t step = int64_t{per_task} * (rows_in_lanes ? pass->row_tile : pass->key_tile);
    const int64_t computed = run(*pass, memory.cut(rows_in_lanes ? rows : c.n_k, step));
    const int64_t expected = expected_tiles(c, pass->row_tile, pass->key_tile);
    check(computed == expected, c.name() + (rows_in_lanes ? ": dq" : ": dkv") + " tiles " +
                                    std::to_string(computed) + ", expected " + std::to_string(expected));
  }
}

// Keys in pages give the bits of `dense`. Those of absent pages are hidden, which the rows' log-sum-exp of
// the dense case does not change.
void test_pages(const AttentionKernels& kernels, const BackwardCase& c, int64_t page_size,
                const BackwardMemory& dense) {
  const std::string name = c.name() + ", pages of " + std::to_string(page_size);
  PagedKeys pages(c, page_size);
  BackwardMemory paged(c), partly(c);
  paged.put_keys_into(pages);
  run_passes(kernels, c, paged, kernels.backward_dq.tiles_per_task);
  check(paged.bytes() == dense.bytes(), name + ": the bits of dense keys");

  BackwardCase hidden = c;
  hidden.hide_pages(page_size);
  pages.evict();
  partly.put_keys_into(pages);
  run_passes(kernels, c, partly, kernels.backward_dq.tiles_per_task);
  const ExpectedGradients expected = expected_gradients(hidden, kernels.bf16_products);
  compare(name + ", some absent: dq", expected.dq.value, expected.dq.error,
          [&](size_t n) { return partly.dq(n); });
}

// All gradients in one pass, where the kernels have it: the bits of two passes.
void test_one_pass(const AttentionKernels& kernels, const BackwardCase& c, const std::string& expected) {
  const BackwardPass& pass = kernels.backward_dqkv;
  check((pass.run != nullptr) == (c.element == Element::f32), c.name() + ": one pass in float32 only");
  if (!pass.run) return;
  const BackwardMemory memory(c);
  const int64_t rows = c.L * c.gqa_heads;
  for (const BackwardTask& task : memory.cut(rows, 100)) kernels.backward_delta(task);
  const int64_t computed = run(pass, memory.cut(rows, rows));
  const int64_t tiles = expected_tiles(c, pass.row_tile, pass.key_tile);
  check(computed == tiles,
        c.name() + ": dqkv tiles " + std::to_string(computed) + ", expected " + std::to_string(tiles));
  check(memory.bytes() == expected, c.name() + ": the same bits in one pass");
}

void test_case(const cpu::Kernels& kernels, const BackwardCase& c) {
  const int element = static_cast<int>(c.element);
  const AttentionKernels& attention = kernels.attention[element];
  const ExpectedGradients expected = expected_gradients(c, attention.bf16_products);
  const BackwardMemory memory(c), again(c);
  run_passes(attention, c, memory, attention.backward_dq.tiles_per_task);
  compare(c.name() + " D", expected.delta, expected.delta_error, [&](size_t n) { return memory.delta(n); });
  compare(c.name() + " dq", expected.dq.value, expected.dq.error, [&](size_t n) { return memory.dq(n); });
  compare(c.name() + " dk", expected.dk.value, expected.dk.error, [&](size_t n) { return memory.dk(n); });
  compare(c.name() + " dv", expected.dv.value, expected.dv.error, [&](size_t n) { return memory.dv(n); });
  run_passes(attention, c, again, 1);
  check(memory.bytes() == again.bytes(), c.name() + ": the same bits, one tile at a time");
  for (int64_t page_size : {1, 7, 128}) test_pages(attention, c, page_size, memory);
  test_one_pass(attention, c, memory.bytes());
}

int test_isa(const std::string& isa, int cases) {
  const cpu::Kernels* kernels;
  try {
    kernels = &cpu::kernels_named(isa);
  } catch (const std::invalid_argument&) {
    return kSkipped;
  }
  for (int number = 0; number < cases; ++number) test_case(*kernels, BackwardCase::numbered(number));
  return finish("backward_test " + isa);
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// backward_test ISA CASES
int main(int, char** argv) { return tiny_llm_ext::tests::test_isa(argv[1], std::stoi(argv[2])); }
