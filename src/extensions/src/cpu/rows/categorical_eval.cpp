// CPU evaluation of `categorical` by the inverse CDF: prefix sums of exp(x - max) per block, binary search
// for the block, linear search inside it.
#include <algorithm>

#include "core/divide_up.h"
#include "core/strides.h"
#include "cpu/rows/enqueue_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/rows.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNsPerElement = 0.3;
constexpr int64_t kBlock = 1024;

// The first index at which the CDF of softmax(x) exceeds u, a number in [0, 1).
uint32_t draw(const cpu::RowKernels& kernels, const std::byte* row, int64_t count, int64_t itemsize, float u,
              double* sums) {
  float weights[kBlock];
  const float max = kernels.max(row, count);
  const auto exp_block = [&](int64_t block) {
    const int64_t begin = block * kBlock;
    return kernels.exp_minus(row + begin * itemsize, std::min(kBlock, count - begin), max, weights);
  };
  const int64_t blocks = divide_up(count, kBlock);
  double total = 0;
  for (int64_t block = 0; block < blocks; block++) sums[block] = total += exp_block(block);
  const double target = u * total;
  const int64_t block = std::upper_bound(sums, sums + blocks, target) - sums;
  if (block == blocks) return static_cast<uint32_t>(kernels.argmax(row, count));  // NaN or infinite
  double sum = block ? sums[block - 1] : 0;
  exp_block(block);
  const int64_t begin = block * kBlock, size = std::min(kBlock, count - begin);
  int64_t last = 0;  // rounding may leave `sum` below the target after the last weight
  for (int64_t i = 0; i < size; i++) {
    if (weights[i] > 0) last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return static_cast<uint32_t>(begin + last);
}

}  // namespace

void Categorical::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &logits = inputs[0], &uniform = inputs[1];
  mx::array& out = outputs[0];
  cpu::allocate_for(out);
  if (out.size() == 0) return;
  const int64_t count = logits.shape(-1);
  const cpu::RowReader reader(logits);
  const size_t sums_bytes = divide_up(count, kBlock) * sizeof(double);
  cpu::enqueue_rows(stream(),
                    {int64_t(out.size()), kNsPerElement * count, threads_for(out.size(), logits.dtype()),
                     sums_bytes + reader.row_bytes()},
                    [=, kernels = &kernels_of(logits), itemsize = int64_t(logits.itemsize()),
                     draws = uniform.data<float>(), shape = uniform.shape(), strides = uniform.strides(),
                     y = out.data<uint32_t>()](int64_t m, std::byte* scratch) {
                      y[m] = draw(*kernels, reader.row(m, scratch + sums_bytes), count, itemsize,
                                  draws[batch_offset(m, shape, strides)], reinterpret_cast<double*>(scratch));
                    });
}

}  // namespace tiny_llm_ext
