// The forward kernels of one instruction set against attention by definition, in memory with guard pages.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention_case.h"
#include "case_memory.h"
#include "check.h"
#include "cpu/attention/softmax_state.h"
#include "cpu/interface/isa.h"
#include "cpu/runtime/thread_pool.h"
#include "guarded.h"
#include "typed_memory.h"

namespace tiny_llm_ext::tests {
namespace {

using cpu::ForwardTask;
using cpu::Kernels;

// The arrays of a case, and the task for all of it.
class CaseMemory {
 public:
  explicit CaseMemory(const AttentionCase& c)
      : c_(c),
        rows_(c.gqa_heads, c.L, c.E, c.query_gap, c.heads_outside),
        keys_(1, c.n_k, c.E, c.key_gap, true),
        lse_rows_(c.gqa_heads, c.L, 1, c.heads_outside ? 0 : 2, c.heads_outside),
        q_(write(rows_, c.element, c.guard, c.q)),
        k_(write(keys_, c.element, c.guard, c.k)),
        v_(write(keys_, c.element, c.guard, c.v)),
        mask_(c),
        sinks_(c.sinks.size() * sizeof(float), c.guard),
        o_(rows_.extent() * bytes_of(c.element), c.guard),
        lse_(lse_rows_.extent() * sizeof(float), c.guard) {
    for (size_t g = 0; g < c.sinks.size(); ++g) put(sinks_, Element::f32, g, c.sinks[g]);
    task_ = {.q = q_.as<void>(),
             .q_head_stride = rows_.head_stride,
             .q_row_stride = rows_.row_stride,
             .k = k_.as<void>(),
             .k_row_stride = keys_.row_stride,
             .v = v_.as<void>(),
             .v_row_stride = keys_.row_stride,
             .mask = mask_.view,
             .sinks = c.has_sinks ? sinks_.as<float>() : nullptr,
             .o = o_.as<void>(),
             .o_head_stride = rows_.head_stride,
             .o_row_stride = rows_.row_stride,
             .lse = lse_.as<float>(),
             .lse_head_stride = lse_rows_.head_stride,
             .lse_row_stride = lse_rows_.row_stride,
             .partial = nullptr,
             .E = c.E,
             .gqa_heads = c.gqa_heads,
             .kv_heads = 1,
             .k_head_stride = 0,
             .v_head_stride = 0,
             .partial_head_stride = 0,
             .row_begin = 0,
             .row_end = c.L * c.gqa_heads,
             .n_q = c.n_q,
             .n_k = c.n_k,
             .left = c.left,
             .right = c.right,
             .key_begin = 0,
             .key_end = c.n_k,
             .scale = c.scale,
             .softcap = c.softcap,
             .fixed_order = false,
             .pages = {},
             .keys_outside = false,
             .next_k = nullptr,
             .next_v = nullptr,
             .next_ids = nullptr,
             .next_begin = 0,
             .next_end = 0};
  }

  const ForwardTask& task() const { return task_; }

  // The bytes of the outputs, including gaps.
  std::string bytes() const {
    return std::string(o_.as<char>(), rows_.extent() * bytes_of(c_.element)) +
           std::string(lse_.as<char>(), lse_rows_.extent() * sizeof(float));
  }

  double o(int64_t g, int64_t i, int64_t e) const { return get(o_, c_.element, rows_.at(g, i, e)); }
  double lse(int64_t g, int64_t i) const { return lse_.as<float>()[lse_rows_.at(g, i, 0)]; }

  bool gaps_untouched() const {
    return gaps_untouched(o_, rows_, bytes_of(c_.element)) && gaps_untouched(lse_, lse_rows_, sizeof(float));
  }

 private:
  static bool gaps_untouched(const Guarded& memory, const Layout& rows, size_t itemsize) {
    std::vector<char> written(rows.extent() * itemsize, 0);
    for (int64_t g = 0; g < rows.heads; ++g) {
      for (int64_t i = 0; i < rows.rows; ++i)
        std::memset(&written[rows.at(g, i, 0) * itemsize], 1, rows.width * itemsize);
    }
    for (size_t n = 0; n < written.size(); ++n) {
      if (!written[n] && memory.as<uint8_t>()[n] != 0xff) return false;
    }
    return true;
  }

  const AttentionCase& c_;
  Layout rows_, keys_;
  Layout lse_rows_;  // with heads inside as of packed sequences: between other heads' numbers
  Guarded q_, k_, v_;
  MaskMemory mask_;
  Guarded sinks_, o_, lse_;
  ForwardTask task_;
};

// A task of a case with its keys and values in pages.
ForwardTask with_pages(ForwardTask task, const PagedKeys& keys, int E) {
  task.k = keys.k(), task.v = keys.v();
  task.k_row_stride = task.v_row_stride = E;
  task.pages = keys.table();
  return task;
}

// The task as tasks of `step` rows.
std::vector<ForwardTask> cut_rows(const ForwardTask& whole, int64_t step) {
  std::vector<ForwardTask> tasks;
  for (int64_t begin = whole.row_begin; begin < whole.row_end; begin += step) {
    tasks.push_back(whole);
    tasks.back().row_begin = begin;
    tasks.back().row_end = std::min(begin + step, whole.row_end);
  }
  return tasks;
}

// Runs the tasks on two threads, each with scratch_bytes() of memory; returns the tiles computed.
int64_t run(const Kernels& kernels, Element element, const std::vector<ForwardTask>& tasks) {
  const int e = static_cast<int>(element);
  std::vector<int64_t> tiles(tasks.size());
  cpu::parallel_for(tasks.size(), 2, [&](int64_t n) {
    const ForwardTask& task = tasks[n];
    const auto& forward = kernels.attention[e].forward;
    const int64_t rows = task.row_end - task.row_begin, row_tile = forward.row_tile;
    const auto scratch_bytes =
        task.keys_outside ? kernels.attention[e].keys_outside_scratch_bytes : forward.scratch_bytes;
    const size_t bytes = scratch_bytes(
        task.E, task.kv_heads == 1 ? rows : task.kv_heads * ((rows + row_tile - 1) / row_tile) * row_tile);
    Guarded scratch(bytes, Guard::after, 64);
    tiles[n] = kernels.attention[e].forward.run(task, scratch.as<void>());
  });
  return std::accumulate(tiles.begin(), tiles.end(), int64_t{0});
}

template <class O, class Lse>
void compare(const AttentionCase& c, const ExpectedAttention& expected, const std::string& what, O o,
             Lse lse) {
  for (int64_t row = 0; row < c.gqa_heads * c.L; ++row) {
    const int64_t g = row / c.L, i = row % c.L;
    const std::string where = what + ", head " + std::to_string(g) + " row " + std::to_string(i);
    if (!near(lse(g, i), expected.lse[row], expected.lse_error[row])) {
      check(false,
            where + ": lse " + std::to_string(lse(g, i)) + ", expected " + std::to_string(expected.lse[row]));
      return;
    }
    for (int e = 0; e < c.E; ++e) {
      const int64_t n = row * c.E + e;
      if (!near(o(g, i, e), expected.o[n], expected.o_error[n])) {
        check(false, where + " element " + std::to_string(e) + ": " + std::to_string(o(g, i, e)) +
                         ", expected " + std::to_string(expected.o[n]) + " within " +
                         std::to_string(expected.o_error[n] * 1e6) + "e-6");
        return;
      }
    }
  }
  check(true, what);
}

// Splits the keys, and merges the partial results in double precision.
void test_partial(const Kernels& kernels, const AttentionCase& c, const ExpectedAttention& expected,
                  const CaseMemory& stage, int splits) {
  const int element = static_cast<int>(c.element);
  const int64_t key_tile = kernels.attention[element].forward.key_tile, rows = c.L * c.gqa_heads,
                width = c.E + 2;
  const int64_t tiles = (c.n_k + key_tile - 1) / key_tile, step = (tiles + splits - 1) / splits * key_tile;
  std::vector<std::unique_ptr<Guarded>> partials;
  std::vector<ForwardTask> tasks;
  for (int64_t begin = 0; begin < c.n_k; begin += step) {
    partials.push_back(std::make_unique<Guarded>(rows * width * sizeof(float), Guard::after));
    ForwardTask part = stage.task();
    part.partial = partials.back()->as<float>();
    part.key_begin = begin, part.key_end = std::min(begin + step, c.n_k);
    part.sinks = nullptr, part.o = nullptr, part.lse = nullptr;
    for (ForwardTask& task : cut_rows(part, int64_t{kernels.attention[element].forward.row_tile} *
                                                kernels.attention[element].forward.tiles_per_task)) {
      task.partial += task.row_begin * width;
      tasks.push_back(task);
    }
  }
  const int64_t real_rows = c.n_q * c.gqa_heads;
  run(kernels, c.element, tasks);
  std::vector<double> o(rows * c.E, 0.0), lse(rows, -INFINITY);
  for (int64_t r = 0; r < real_rows; ++r) {
    const int64_t i = r / c.gqa_heads, g = r % c.gqa_heads, row = g * c.L + i;
    // The subtrahend of the exponentials: m, rounded in base 2 unless it is large.
    const auto subtrahend = [](float m) {
      return cpu::uses_rounded_product(m) ? m * cpu::kLog2e * cpu::kLn2 : m;
    };
    double top = c.has_sinks ? c.sinks[g] : -INFINITY;
    for (const auto& partial : partials)
      top = std::fmax(top, subtrahend(partial->as<float>()[r * width + c.E]));
    double sum = c.has_sinks && c.sinks[g] != -INFINITY ? std::exp(c.sinks[g] - top) : 0;
    for (const auto& partial : partials) {
      const float* part = partial->as<float>() + r * width;
      const double m = subtrahend(part[c.E]);
      if (m == -INFINITY && part[c.E + 1] == 0) continue;
      const double weight = std::exp(m - (m == -INFINITY ? 0 : top));
      sum += m == -INFINITY ? part[c.E + 1] : weight * part[c.E + 1];
      for (int e = 0; e < c.E; ++e) o[row * c.E + e] += weight * part[e];
    }
    for (int e = 0; e < c.E && sum != 0; ++e) o[row * c.E + e] /= sum;
    lse[row] = sum == 0 ? -INFINITY : top + std::log(sum);
  }
  compare(
      c, expected, c.name() + ", " + std::to_string(splits) + " key ranges",
      [&](int64_t g, int64_t i, int64_t e) { return o[(g * c.L + i) * c.E + e]; },
      [&](int64_t g, int64_t i) { return lse[g * c.L + i]; });
}

// Keys of absent pages are hidden, whatever the mask of the case shows.
void test_absent_pages(const Kernels& kernels, const AttentionCase& c, int64_t page_size) {
  AttentionCase hidden = c;
  hidden.hide_pages(page_size);
  const CaseMemory fresh(c);
  PagedKeys paged(c, page_size);
  paged.evict();
  const auto& forward = kernels.attention[static_cast<int>(c.element)].forward;
  run(kernels, c.element,
      cut_rows(with_pages(fresh.task(), paged, c.E), int64_t{forward.row_tile} * forward.tiles_per_task));
  compare(
      c, expected_attention(hidden), c.name() + ", absent pages of " + std::to_string(page_size),
      [&](int64_t g, int64_t i, int64_t e) { return fresh.o(g, i, e); },
      [&](int64_t g, int64_t i) { return fresh.lse(g, i); });
}

// The partial results of a task of several KV heads: those of a head lie after those of the heads before it.
void test_partial_heads(const Kernels& kernels, const AttentionCase& c, int heads,
                        const ExpectedAttention& whole) {
  const CaseMemory fresh(c);
  const PagedHeads paged(c, fresh.task(), heads, 16, false);
  const int64_t group = c.gqa_heads / heads, width = c.E + 2, of_head = c.L * group * width;
  const Guarded partial(heads * of_head * sizeof(float), Guard::after);
  ForwardTask task = paged.task();
  task.partial = partial.as<float>(), task.partial_head_stride = of_head;
  task.sinks = nullptr, task.o = nullptr, task.lse = nullptr;
  run(kernels, c.element, {task});
  const auto row = [&](int64_t g, int64_t i) {
    return partial.as<float>() + g / group * of_head + (i * group + g % group) * width;
  };
  const auto sum = [&](int64_t g, int64_t i) { return i < c.n_q ? row(g, i)[c.E + 1] : 0; };
  compare(
      c, whole, c.name() + ", partial results of " + std::to_string(heads) + " KV heads",
      [&](int64_t g, int64_t i, int64_t e) {
        const double o = sum(g, i) == 0 ? 0 : row(g, i)[e] / sum(g, i);
        return std::ldexp(o, -static_cast<int>(g / group % 3));
      },
      [&](int64_t g, int64_t i) { return cpu::log_sum_exp(sum(g, i) == 0 ? 0 : row(g, i)[c.E], sum(g, i)); });
}

// A task of several KV heads.
void test_heads_together(const Kernels& kernels, const AttentionCase& c) {
  if (c.gqa_heads % 2 || c.mask_kind != MaskKind::none) return;
  const ExpectedAttention whole = expected_attention(c);
  if (!c.has_sinks) test_partial_heads(kernels, c, 2, whole);
  for (const int64_t page_size : {4, 16, 64, 128}) {
    AttentionCase hidden = c;
    hidden.hide_pages(page_size);
    const ExpectedAttention partly = expected_attention(hidden);
    for (const int heads : {2, c.gqa_heads}) {
      for (const bool slots_outside : {false, true}) {
        for (const bool absent : {false, true}) {
          const CaseMemory fresh(c);
          PagedHeads paged(c, fresh.task(), heads, page_size, slots_outside);
          if (absent) paged.evict();
          run(kernels, c.element, {paged.task()});
          const int64_t group = c.gqa_heads / heads;
          compare(
              c, absent ? partly : whole,
              c.name() + ", " + std::to_string(heads) + " KV heads in pages of " + std::to_string(page_size) +
                  (absent ? ", some absent" : ""),
              [&](int64_t g, int64_t i, int64_t e) {
                return std::ldexp(fresh.o(g, i, e), -static_cast<int>(g / group % 3));
              },
              [&](int64_t g, int64_t i) { return fresh.lse(g, i); });
          check(fresh.gaps_untouched(), c.name() + ": written between the rows of several KV heads");
        }
      }
    }
  }
}

void test_case(const Kernels& kernels, const AttentionCase& c, int splits) {
  const int element = static_cast<int>(c.element), row_tile = kernels.attention[element].forward.row_tile;
  const ExpectedAttention expected = expected_attention(c);
  const CaseMemory stage(c), again(c);
  const int64_t tiles =
      run(kernels, c.element,
          cut_rows(stage.task(), int64_t{row_tile} * kernels.attention[element].forward.tiles_per_task));
  compare(
      c, expected, c.name(), [&](int64_t g, int64_t i, int64_t e) { return stage.o(g, i, e); },
      [&](int64_t g, int64_t i) { return stage.lse(g, i); });
  check(stage.gaps_untouched(), c.name() + ": written between the rows");
  check(tiles == expected_tiles(c, row_tile, kernels.attention[element].forward.key_tile),
        c.name() + ": tiles " + std::to_string(tiles) + ", expected " +
            std::to_string(expected_tiles(c, row_tile, kernels.attention[element].forward.key_tile)));
  run(kernels, c.element, cut_rows(again.task(), row_tile));
  check(stage.bytes() == again.bytes(), c.name() + ": the same bits, one query tile at a time");
  const CaseMemory outside(c);
  ForwardTask all_rows = outside.task();
  all_rows.keys_outside = true;
  run(kernels, c.element, {all_rows});
  check(stage.bytes() == outside.bytes(), c.name() + ": the same bits, keys outside");
  test_partial(kernels, c, expected, stage, splits);
  if (c.n_k == 0) return;
  for (int64_t page_size : {1, 7, 128}) {
    const CaseMemory fresh(c);
    const PagedKeys paged(c, page_size);
    run(kernels, c.element, cut_rows(with_pages(fresh.task(), paged, c.E), row_tile));
    check(stage.bytes() == fresh.bytes(),
          c.name() + ": the same bits, keys in pages of " + std::to_string(page_size));
    test_absent_pages(kernels, c, page_size);
  }
  test_heads_together(kernels, c);
}

int test_isa(const std::string& isa, int cases) {
  const Kernels* kernels;
  try {
    kernels = &cpu::kernels_named(isa);
  } catch (const std::invalid_argument&) {
    return kSkipped;
  }
  for (int number = 0; number < cases; ++number)
    test_case(*kernels, AttentionCase::numbered(number), 1 + number / 3 % 4);
  return finish("attention_test " + isa);
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// attention_test ISA CASES
int main(int, char** argv) { return tiny_llm_ext::tests::test_isa(argv[1], std::stoi(argv[2])); }
