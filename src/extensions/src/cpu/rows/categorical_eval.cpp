// CPU evaluation of a draw: the weights of whole blocks are added up, then those of the block that is hit.
#include <algorithm>

#include "attention/inputs.h"
#include "attention/tiles.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/row_memory.h"
#include "cpu/runtime/scratch.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsPerWeight = 0.3;
constexpr int64_t kBlock = 1024;

// The first index behind which the weights e^x add up to more than `share` of all of them.
uint32_t draw(const cpu::RowKernels& kernels, const std::byte* row, int64_t count, int64_t itemsize,
              float share, double* sums) {
  float weights[kBlock];
  const float best = kernels.largest(row, count);
  const auto weigh = [&](int64_t block) {
    const int64_t begin = block * kBlock;
    return kernels.powers(row + begin * itemsize, std::min(kBlock, count - begin), best, weights);
  };
  const int64_t blocks = divide_up(count, kBlock);
  double total = 0;
  for (int64_t block = 0; block < blocks; block++) sums[block] = total += weigh(block);
  const double target = share * total;
  const int64_t block = std::upper_bound(sums, sums + blocks, target) - sums;
  if (block == blocks) return static_cast<uint32_t>(kernels.argmax(row, count));  // a NaN or infinity
  double sum = block ? sums[block - 1] : 0;
  weigh(block);
  const int64_t begin = block * kBlock, size = std::min(kBlock, count - begin);
  int64_t last = 0;  // rounding may leave a little of the block's sum behind its last weight
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
  cpu::enqueue(stream(), [kernels = &kernels_of(logits), threads = threads_, rows = int64_t(out.size()),
                          count = int64_t{logits.shape(-1)}, itemsize = int64_t(logits.itemsize()),
                          reader = cpu::RowReader(logits), shares = uniform.data<float>(),
                          shape = uniform.shape(), strides = uniform.strides(), y = out.data<uint32_t>()] {
    cpu::for_rows(rows, kNanosecondsPerWeight * count, threads, [&](int64_t begin, int64_t end) {
      const size_t sums = divide_up(count, kBlock) * sizeof(double);
      auto* room = static_cast<std::byte*>(cpu::thread_scratch(sums + reader.row_bytes()));
      for (int64_t m = begin; m < end; m++) {
        y[m] = draw(*kernels, reader.row(m, room + sums), count, itemsize,
                    shares[batch_offset(m, shape, strides)], reinterpret_cast<double*>(room));
      }
    });
  });
}

}  // namespace tiny_llm_ext
