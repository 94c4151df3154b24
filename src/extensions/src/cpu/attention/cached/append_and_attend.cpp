// Rotates the new tokens, writes keys and values into the caches, and runs attention over each cache.
#include "cpu/attention/cached/append_and_attend.h"

#include <cstring>

#include "attention/inputs.h"
#include "core/dtype.h"
#include "core/strides.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/plan.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr double kNanosecondsPerNewElement = 0.3;  // of rotation and copy

// Rows of an input (B, L, H, E) with any strides.
struct Heads {
  explicit Heads(const mx::array& x) : heads(x.shape(2)), reader(x) {}

  // `scratch` has room for a row that must be gathered.
  const void* row(int64_t token, int64_t head, void* scratch) const {
    return reader.row(token * heads + head, scratch);
  }

  int64_t heads;
  RowReader reader;
};

class AppendAndAttend {
 public:
  AppendAndAttend(const Arrays& inputs, Arrays& outputs, const CachedAttentionParams& params,
                  const std::vector<CacheInBatch>& caches, const Kernels& kernels, int threads,
                  const std::vector<bool>& in_place)
      : inputs_(inputs),
        outputs_(outputs),
        params_(params),
        caches_(caches),
        kernels_(kernels),
        threads_(threads),
        in_place_(in_place),
        L_(inputs[0].shape(1)),
        Hq_(inputs[0].shape(2)),
        E_(inputs[0].shape(3)),
        itemsize_(inputs[0].itemsize()),
        queries_(
            new_array({inputs[0].shape(0), static_cast<int>(Hq_), static_cast<int>(L_), static_cast<int>(E_)},
                      inputs[0].dtype())) {}

  void run() {
    for (size_t i = 1; i < outputs_.size(); i++) {
      const mx::array& cache = inputs_[CachedAttention::kFirstCache + i - 1];
      if (!in_place_[i - 1]) copy_rows(RowReader(cache), rows_of(cache), outputs_[i].data<std::byte>(), 1);
    }
    if (outputs_[0].size() == 0) return;
    std::memset(outputs_[0].data<std::byte>(), 0, outputs_[0].nbytes());  // rows without a cache
    const int count = static_cast<int>(caches_.size());
    // With fewer caches than threads, the threads share the work within each cache; the plan decides how
    // many.
    const bool sequential = count < threads_ || work() < kAttentionThreshold.now();
    parallel_for(count, sequential ? 1 : threads_, [&](int64_t i) {
      append_tokens(static_cast<int>(i));
      attend(static_cast<int>(i));
    });
  }

 private:
  mx::array& keys(int cache) const { return outputs_[1 + 2 * cache]; }
  mx::array& values(int cache) const { return outputs_[2 + 2 * cache]; }

  // About the multiply-adds of all scores.
  double work() const {
    double tokens = 0;
    for (size_t i = 0; i < caches_.size(); i++)
      tokens += static_cast<double>(caches_[i].state.length + L_) * keys(static_cast<int>(i)).shape(0);
    return tokens * L_ * Hq_ * E_;
  }

  // Writes rotated queries to queries_, rotated keys and values to the cache.
  void append_tokens(int cache) {
    const int64_t first = caches_[cache].first_row, length = caches_[cache].state.length;
    const int64_t rows = keys(cache).shape(0), capacity = keys(cache).shape(2), Hkv = keys(cache).shape(1);
    const Heads query(inputs_[0]), key(inputs_[1]), value(inputs_[2]);
    const RowReader cos(inputs_[3]), sin(inputs_[4]);
    auto* const to_queries = queries_.data<std::byte>();
    auto* const to_keys = keys(cache).data<std::byte>();
    auto* const to_values = values(cache).data<std::byte>();
    const auto rotate = kernels_.rows[static_cast<int>(element_of(queries_.dtype()))].rope;
    const double cost = kNanosecondsPerNewElement * (Hq_ + 2 * Hkv) * E_;
    const Operation operation("append");
    parallel_rows(rows * L_, cost, threads_, [&](int64_t begin, int64_t end) {
      auto* scratch = static_cast<std::byte*>(thread_scratch(2 * cos.row_bytes() + E_ * itemsize_));
      std::byte* const head_scratch = scratch + 2 * cos.row_bytes();
      for (int64_t index = begin; index < end; index++) {
        const int64_t row = index / L_, s = index % L_, token = first * L_ + index;
        const int64_t position = offset_of(params_.offset, first + row) + s;
        RopeTask task = {};
        task.cos = reinterpret_cast<const float*>(cos.row(position, scratch));
        task.sin = reinterpret_cast<const float*>(sin.row(position, scratch + cos.row_bytes()));
        task.heads = 1;
        task.half = E_ / 2;
        task.traditional = params_.traditional;
        for (int64_t h = 0; h < Hq_; h++) {
          task.x = query.row(token, h, head_scratch);
          task.y = to_queries + (((first + row) * Hq_ + h) * L_ + s) * E_ * itemsize_;
          rotate(task);
        }
        for (int64_t h = 0; h < Hkv; h++) {
          const int64_t offset = ((row * Hkv + h) * capacity + length + s) * E_ * itemsize_;
          task.x = key.row(token, h, head_scratch);
          task.y = to_keys + offset;
          rotate(task);
          std::memcpy(to_values + offset, value.row(token, h, head_scratch), E_ * itemsize_);
        }
      }
    });
  }

  void attend(int cache) {
    const int64_t first = caches_[cache].first_row, length = caches_[cache].state.length;
    const int rows = keys(cache).shape(0), Hkv = keys(cache).shape(1), E = static_cast<int>(E_);
    const int Hq = static_cast<int>(Hq_), L = static_cast<int>(L_), S = static_cast<int>(length) + L;
    const mx::Shape present = {rows, Hkv, S, E};
    const mx::Strides& strides = keys(cache).strides();
    const AttentionInputs inputs(
        strided_view(queries_, {rows, Hq, L, E}, {Hq_ * L_ * E_, L_ * E_, E_, 1}, first * Hq_ * L_ * E_),
        strided_view(keys(cache), present, strides, 0), strided_view(values(cache), present, strides, 0));
    mx::array o =
        strided_view(outputs_[0], {rows, Hq, L, E}, {L_ * Hq_ * E_, E_, Hq_ * E_, 1}, first * L_ * Hq_ * E_);
    mx::array lse = new_array({rows, Hq, L}, mx::float32);
    AttentionParams params;
    params.scale = params_.scale;
    params.right = 0;
    params.kernels = &kernels_;
    params.threads = {threads_, threads_};
    run_forward(inputs, make_problem(inputs, params, mx::Device::cpu), o, lse);
  }

  const Arrays& inputs_;
  Arrays& outputs_;
  const CachedAttentionParams& params_;
  const std::vector<CacheInBatch>& caches_;
  const Kernels& kernels_;
  const int threads_;
  const std::vector<bool>& in_place_;
  const int64_t L_, Hq_, E_, itemsize_;
  mx::array queries_;  // rotated, (B, Hq, L, E)
};

}  // namespace

void append_and_attend(const Arrays& inputs, Arrays& outputs, const CachedAttentionParams& params,
                       const std::vector<CacheInBatch>& caches, const Kernels& kernels, int threads,
                       const std::vector<bool>& in_place) {
  AppendAndAttend(inputs, outputs, params, caches, kernels, threads, in_place).run();
}

}  // namespace tiny_llm_ext::cpu
