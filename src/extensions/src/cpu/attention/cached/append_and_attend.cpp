// Rotates the new tokens, writes keys and values into the caches, and runs attention over each cache.
#include "cpu/attention/cached/append_and_attend.h"

#include <cstring>

#include "core/bytes.h"
#include "core/divide_up.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/plan.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr double kNanosecondsPerNewElement = 0.3;  // of rotation and copy

class AppendAndAttend {
 public:
  AppendAndAttend(const NewTokens& tokens, const std::vector<CacheMemory>& caches, std::byte* attended,
                  const Kernels& kernels, int threads)
      : tokens_(tokens),
        caches_(caches),
        attended_(attended),
        kernels_(kernels),
        threads_(threads),
        itemsize_(size_of(tokens.element)),
        query_bytes_(round_up(bytes_of({tokens.B, tokens.L, tokens.Hq, tokens.E, itemsize_}), kCacheLine)),
        memory_(allocate(query_bytes_ + bytes_of({tokens.B, tokens.L, tokens.Hq, int64_t{sizeof(float)}}))),
        queries_(static_cast<std::byte*>(memory_.buffer().raw_ptr())) {}

  void run() {
    if (tokens_.B * tokens_.L == 0) return;
    int64_t rows = 0;
    for (const CacheMemory& cache : caches_) rows += cache.rows;
    if (rows < tokens_.B)  // the results of rows without a cache
      std::memset(attended_, 0, tokens_.B * tokens_.L * tokens_.Hq * tokens_.E * itemsize_);
    const auto count = static_cast<int64_t>(caches_.size());
    // With fewer caches than threads, the threads share the work within each cache; the plan decides how
    // many.
    const bool sequential = count < threads_ || work() < kAttentionThreshold.now();
    parallel_for(count, sequential ? 1 : threads_, [&](int64_t i) {
      append_tokens(caches_[i]);
      attend(caches_[i]);
    });
  }

 private:
  // About the multiply-adds of all scores.
  double work() const {
    double tokens = 0;
    for (const CacheMemory& cache : caches_)
      tokens += static_cast<double>(cache.length + tokens_.L) * static_cast<double>(cache.rows);
    return tokens * static_cast<double>(tokens_.L * tokens_.Hq * tokens_.E);
  }

  // Writes rotated queries to queries_, (B, Hq, L, E), rotated keys and values to the cache.
  void append_tokens(const CacheMemory& cache) const {
    const int64_t L = tokens_.L, Hq = tokens_.Hq, Hkv = tokens_.Hkv, E = tokens_.E;
    const int64_t row_bytes = E * itemsize_;
    const auto rotate = kernels_.rows[static_cast<int>(tokens_.element)].rope;
    const double cost = kNanosecondsPerNewElement * static_cast<double>((Hq + 2 * Hkv) * E);
    const size_t table_bytes = tokens_.cos.row_bytes();
    const Operation operation("append");
    parallel_rows(cache.rows * L, cost, threads_, [&](int64_t begin, int64_t end) {
      auto* scratch = static_cast<std::byte*>(thread_scratch(2 * table_bytes + row_bytes));
      std::byte* const head_scratch = scratch + 2 * table_bytes;
      for (int64_t index = begin; index < end; index++) {
        const int64_t row = index / L, s = index % L, token = cache.first_row * L + index;
        const int64_t position = offset_of(tokens_.offset, cache.first_row + row) + s;
        RopeTask task = {};
        task.cos = reinterpret_cast<const float*>(tokens_.cos.row(position, scratch));
        task.sin = reinterpret_cast<const float*>(tokens_.sin.row(position, scratch + table_bytes));
        task.heads = 1;
        task.half = E / 2;
        task.traditional = tokens_.traditional;
        for (int64_t h = 0; h < Hq; h++) {
          task.x = tokens_.query.row(token * Hq + h, head_scratch);
          task.y = queries_ + (((cache.first_row + row) * Hq + h) * L + s) * row_bytes;
          rotate(task);
        }
        for (int64_t h = 0; h < Hkv; h++) {
          const int64_t offset = ((row * Hkv + h) * cache.capacity + cache.length + s) * row_bytes;
          task.x = tokens_.key.row(token * Hkv + h, head_scratch);
          task.y = cache.keys + offset;
          rotate(task);
          std::memcpy(cache.values + offset, tokens_.value.row(token * Hkv + h, head_scratch), row_bytes);
        }
      }
    });
  }

  void attend(const CacheMemory& cache) const {
    const int64_t L = tokens_.L, Hq = tokens_.Hq, Hkv = tokens_.Hkv, E = tokens_.E;
    const int64_t first = cache.first_row * L * Hq;  // of the queries
    Problem problem = {};
    problem.B = cache.rows;
    problem.Hq = Hq;
    problem.Hkv = Hkv;
    problem.L = L;
    problem.S = cache.length + L;
    problem.E = problem.V = E;
    problem.dtype = tokens_.element;
    problem.left = kUnbounded;
    problem.scale = tokens_.scale;
    problem.backend = Backend::cpu;
    problem.kernels = &kernels_;
    problem.threads = {threads_, threads_};
    const mx::Shape batch = {static_cast<int>(cache.rows)};
    const mx::Strides of_cache = {Hkv * cache.capacity * E, cache.capacity * E, E};
    run_forward({batch,
                 {queries_ + first * E * itemsize_, itemsize_, batch, {Hq * L * E, L * E, E}},
                 {cache.keys, itemsize_, batch, of_cache},
                 {cache.values, itemsize_, batch, of_cache},
                 {attended_ + first * E * itemsize_, itemsize_, batch, {L * Hq * E, E, Hq * E}},
                 {queries_ + query_bytes_ + first * sizeof(float), sizeof(float), batch, {Hq * L, L, 1}}},
                problem);
  }

  const NewTokens& tokens_;
  const std::vector<CacheMemory>& caches_;
  std::byte* const attended_;
  const Kernels& kernels_;
  const int threads_;
  const int64_t itemsize_, query_bytes_;
  const mx::allocator::Data memory_;
  std::byte* const queries_;  // rotated, (B, Hq, L, E), then the log-sum-exp (B, Hq, L)
};

}  // namespace

void append_and_attend(const NewTokens& tokens, const std::vector<CacheMemory>& caches, std::byte* attended,
                       const Kernels& kernels, int threads) {
  AppendAndAttend(tokens, caches, attended, kernels, threads).run();
}

}  // namespace tiny_llm_ext::cpu
