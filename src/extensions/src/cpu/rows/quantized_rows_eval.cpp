// CPU evaluation of `quantized_rows`: unpacks the row of each id.
#include <cstring>

#include "core/strides.h"
#include "cpu/rows/enqueue_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/rows.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNsPerDecoded = 0.2;

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
  task.num_groups = scales.shape(1);
  task.group_size = group_size_;
  task.bits = bits_;
  const double cost = kNsPerDecoded * task.num_groups * task.group_size;
  const cpu::RowReader words(weight), scale_rows(scales), bias_rows(biases);
  const size_t scale_bytes = scale_rows.row_bytes();
  cpu::enqueue_rows(
      stream(),
      {int64_t(ids.size()), cost, threads_for(ids.size(), out.dtype()), words.row_bytes() + 2 * scale_bytes},
      [=, unpack = kernels_of(out).unpack, row_bytes = task.num_groups * task.group_size * out.itemsize(),
       vocabulary = int64_t{weight.shape(0)}, first = ids.data<std::byte>(), shape = ids.shape(),
       strides = ids.strides(), dtype = ids.dtype(),
       y = out.data<std::byte>()](int64_t i, std::byte* scratch) {
        const int64_t id = read_id(dtype, first + batch_offset(i, shape, strides) * mx::size_of(dtype));
        if (id < 0 || id >= vocabulary) {
          std::memset(y + i * row_bytes, 0xff, row_bytes);  // NaN in every type
          return;
        }
        cpu::UnpackTask row = task;
        row.words = reinterpret_cast<const uint32_t*>(words.row(id, scratch));
        row.scales = scale_rows.row(id, scratch + words.row_bytes());
        row.biases = bias_rows.row(id, scratch + words.row_bytes() + scale_bytes);
        row.out = y + i * row_bytes;
        unpack(row);
      });
}

}  // namespace tiny_llm_ext
