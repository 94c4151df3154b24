// CPU evaluation of the look-up in packed weights: each id unpacks its row.
#include <cstring>

#include "attention/inputs.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/row_memory.h"
#include "cpu/runtime/scratch.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsToUnpack = 0.2;

int64_t read_id(mx::Dtype dtype, const std::byte* at) {
  if (dtype == mx::int64) return *reinterpret_cast<const int64_t*>(at);
  if (dtype == mx::uint32) return *reinterpret_cast<const uint32_t*>(at);
  return *reinterpret_cast<const int32_t*>(at);
}

}  // namespace

void QuantizedRows::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array &ids = inputs[0], &weight = inputs[1], &scales = inputs[2], &biases = inputs[3];
  mx::array& out = outputs[0];
  cpu::allocate_for(out);
  if (out.size() == 0) return;
  cpu::UnpackTask task = {};
  task.groups = scales.shape(1);
  task.group = group_size_;
  task.bits = bits_;
  auto run = [=, kernel = kernels_of(out).unpack, threads = threads_, y = out.data<std::byte>(),
              row_bytes = task.groups * task.group * out.itemsize(), vocabulary = int64_t{weight.shape(0)},
              count = int64_t(ids.size()), first = ids.data<std::byte>(), shape = ids.shape(),
              strides = ids.strides(), dtype = ids.dtype(), words = cpu::RowReader(weight),
              scales = cpu::RowReader(scales), biases = cpu::RowReader(biases)] {
    const double cost = kNanosecondsToUnpack * task.groups * task.group;
    cpu::for_rows(count, cost, threads, [&](int64_t begin, int64_t end) {
      const size_t scale_bytes = scales.row_bytes();
      auto* room = static_cast<std::byte*>(cpu::thread_scratch(words.row_bytes() + 2 * scale_bytes));
      cpu::UnpackTask row = task;
      for (int64_t i = begin; i < end; i++) {
        const int64_t id = read_id(dtype, first + batch_offset(i, shape, strides) * mx::size_of(dtype));
        std::byte* const to = y + i * row_bytes;
        if (id < 0 || id >= vocabulary) {
          std::memset(to, 0xff, row_bytes);  // a NaN in every type
          continue;
        }
        row.words = reinterpret_cast<const uint32_t*>(words.row(id, room));
        row.scales = scales.row(id, room + words.row_bytes());
        row.biases = biases.row(id, room + words.row_bytes() + scale_bytes);
        row.out = to;
        kernel(row);
      }
    });
  };
  cpu::enqueue(stream(), std::move(run));
}

}  // namespace tiny_llm_ext
