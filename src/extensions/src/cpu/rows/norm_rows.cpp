// The root mean square norm of rows in any layout.
#include "cpu/rows/norm_rows.h"

#include <utility>

#include "core/divide_up.h"
#include "core/dtype.h"
#include "cpu/runtime/region_log.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
NormRows::NormRows(RowReader x, int64_t rows, const mlx::core::array& weight, float eps, std::byte* y)
    : x_(std::move(x)),
      weight_(weight),
      weight_element_(element_of(weight.dtype())),
      rows_(rows),
      width_(weight.shape(-1)),
      eps_(eps),
      y_(y) {}

void NormRows::run(const RowKernels& kernels, int threads) const {
  const size_t bytes = x_.row_bytes(), aligned = round_up(bytes, kCacheLine);
  const Operation operation("norm");
  parallel_rows(rows_, kNsPerNormed * width_, threads, [&](int64_t begin, int64_t end) {
    auto* scratch = static_cast<std::byte*>(thread_scratch(aligned + weight_.row_bytes()));
    NormTask task = {};
    task.width = width_;
    task.eps = eps_;
    task.weight_element = weight_element_;
    task.weight = weight_.row(0, scratch + aligned);
    for (int64_t m = begin; m < end; m++) {
      task.x = x_.row(m, scratch);
      task.y = y_ + m * bytes;
      kernels.rms_norm(task);
    }
  });
}

}  // namespace tiny_llm_ext::cpu
