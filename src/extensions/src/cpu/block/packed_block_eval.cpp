// CPU evaluation of a decoder block over pages.
#include "block/packed_block.h"

#include <cmath>
#include <cstring>

#include "attention/inputs.h"
#include "core/dtype.h"
#include "core/strides.h"
#include "cpu/attention/cached/store_tokens.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "cpu/block/block_operations.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsPerNewElement = 0.3;  // of rotation and copy

// Packed rows (1, T, H, E) as attention reads them, (H, T, E).
mx::array heads_first(const mx::array& rows, int heads, int size) {
  return strided_view(rows, {heads, rows.shape(1), size}, {size, heads * size, 1}, 0);
}

// The heads of a step: query, key and value (1, T, H, E), cos, sin, key pages, value pages.
class AppendAndAttend {
 public:
  AppendAndAttend(const cpu::Arrays& heads, const PackedStep& step, bool traditional,
                  const cpu::Kernels& kernels, int threads)
      : query_(heads[0]),
        key_(heads[1]),
        value_(heads[2]),
        cos_(heads[3]),
        sin_(heads[4]),
        key_pages_(heads[5]),
        value_pages_(heads[6]),
        step_(step),
        traditional_(traditional),
        kernels_(kernels),
        threads_(threads),
        Hq_(query_.shape(2)),
        Hkv_(key_.shape(2)),
        E_(query_.shape(3)) {}

  // (1, T, Hq * E).
  mx::array run() {
    append();
    mx::array attended = cpu::new_array({1, query_.shape(1), Hq_ * E_}, query_.dtype());
    attend(attended);
    return attended;
  }

 private:
  // Rotates queries in place, and keys into their slots.
  void append() {
    const int64_t itemsize = query_.itemsize(), row_bytes = E_ * itemsize;
    const cpu::PageSlots keys = slots_of(key_pages_), values = slots_of(value_pages_);
    const auto rotate = kernels_.rows[static_cast<int>(element_of(query_.dtype()))].rope;
    const cpu::RowReader cos(cos_), sin(sin_);
    const double cost = kNanosecondsPerNewElement * (Hq_ + 2 * Hkv_) * E_;
    const cpu::Operation operation("append");
    cpu::parallel_rows(step_.rows(), cost, threads_, [&](int64_t begin, int64_t end) {
      auto* scratch = static_cast<std::byte*>(cpu::thread_scratch(cos.row_bytes() + sin.row_bytes()));
      for (int64_t t = begin; t < end; t++) {
        const int64_t position = step_.positions()[t], slot = step_.slots()[t];
        cpu::RopeTask task = {};
        task.cos = reinterpret_cast<const float*>(cos.row(position, scratch));
        task.sin = reinterpret_cast<const float*>(sin.row(position, scratch + cos.row_bytes()));
        task.half = E_ / 2;
        task.traditional = traditional_;
        task.x_head_stride = task.y_head_stride = E_;
        task.heads = Hq_;
        task.x = task.y = query_.data<std::byte>() + t * Hq_ * row_bytes;
        rotate(task);
        task.heads = Hkv_;
        task.x = key_.data<std::byte>() + t * Hkv_ * row_bytes;
        task.y = keys.at(slot, 0);
        task.y_head_stride = keys.head_stride / itemsize;
        rotate(task);
        for (int64_t h = 0; h < Hkv_; h++) {
          std::memcpy(values.at(slot, h), value_.data<std::byte>() + (t * Hkv_ + h) * row_bytes, row_bytes);
        }
      }
    });
  }

  // Of pages (P, Hkv, page, E) without gaps.
  cpu::PageSlots slots_of(mx::array& pages) const {
    const int64_t slot_bytes = E_ * query_.itemsize(), page = step_.page_size();
    return {pages.data<std::byte>(), page, Hkv_ * page * slot_bytes, page * slot_bytes, slot_bytes};
  }

  void attend(mx::array& attended) {
    const AttentionInputs inputs(heads_first(query_, Hq_, E_), key_pages_, value_pages_);
    AttentionParams params;
    params.right = 0;
    params.kernels = &kernels_;
    params.threads = {threads_, threads_};
    Problem problem = make_problem(inputs, params, mx::Device::cpu);
    problem.packed = problem.paged = problem.lengths = true;
    problem.S = step_.block_table().shape(1) * step_.page_size();
    problem.sequences = step_.sequences();
    mx::array o = heads_first(attended, Hq_, E_);
    mx::array lse = cpu::new_array({Hq_, query_.shape(1)}, mx::float32);
    const cpu::PageTables pages(step_.block_table(), key_pages_);
    cpu::run_forward(inputs, problem, o, lse, &pages);
  }

  mx::array query_, key_, value_, cos_, sin_, key_pages_, value_pages_;
  const PackedStep& step_;
  const bool traditional_;
  const cpu::Kernels& kernels_;
  const int threads_;
  const int Hq_, Hkv_, E_;
};

}  // namespace

void PackedDecoderBlock::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  check_pages(inputs, throws_runtime_error(name()));
  cpu::allocate_for(outputs[0]);
  for (int i = 1; i < 3; i++) outputs[i].copy_shared_buffer(inputs[i]);
  if (step_->rows() == 0) return;
  const int threads = threads_for(step_->rows(), inputs[0].dtype());
  cpu::dispatch_placed(
      stream(), inputs, outputs,
      [parts = parts_, step = step_, kernels = &kernels_, threads](const cpu::Arrays& arrays,
                                                                   cpu::Arrays& results) {
        try {
          const cpu::BlockTeam team(*parts, step->rows(), threads);
          run_decoder_block(
              *parts, arrays,
              [&](const mx::array& x, const PackedLayer& layer, const ProductOptions& options) {
                return cpu::multiply(x, layer, options, results[0], *kernels, threads);
              },
              [&](mx::array& heads, const FirstNorm& norm) {
                return cpu::normalise(heads, norm, *kernels, threads);
              },
              [&](const cpu::Arrays& heads) -> cpu::Arrays {
                return {AppendAndAttend(heads, *step, parts->traditional, *kernels, threads).run()};
              });
        } catch (...) {
          cpu::fill_with_nan(results[0]);  // the slots of the step may be written
          throw;
        }
      });
}

}  // namespace tiny_llm_ext
