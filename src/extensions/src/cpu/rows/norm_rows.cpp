#include "cpu/rows/norm_rows.h"

#include "core/dtype.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {
namespace {

constexpr double kNanosecondsPerNormed = 0.25;

}  // namespace

NormRows::NormRows(const mlx::core::array& x, const mlx::core::array& weight, float eps)
    : x(x),
      weight(weight),
      weight_element(element_of(weight.dtype())),
      rows(x.shape(-1) > 0 ? x.size() / x.shape(-1) : 0),
      width(x.shape(-1)),
      eps(eps) {}

void NormRows::run(const RowKernels& kernels, int threads) const {
  const size_t bytes = x.row_bytes(), aligned = (bytes + 63) / 64 * 64;
  parallel_rows(rows, kNanosecondsPerNormed * width, threads, [&](int64_t begin, int64_t end) {
    auto* scratch = static_cast<std::byte*>(thread_scratch(aligned + weight.row_bytes()));
    NormTask task = {};
    task.width = width;
    task.eps = eps;
    task.weight_element = weight_element;
    task.weight = weight.row(0, scratch + aligned);
    for (int64_t m = begin; m < end; m++) {
      task.x = x.row(m, scratch);
      task.y = y + m * bytes;
      kernels.rms_norm(task);
    }
  });
}

}  // namespace tiny_llm_ext::cpu
