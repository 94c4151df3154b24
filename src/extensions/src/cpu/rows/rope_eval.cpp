// CPU evaluation of `rope`, token by token.
#include <cstring>

#include "core/strides.h"
#include "cpu/rows/enqueue_rows.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/rows.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNsPerRotated = 0.2;

struct Sizes {
  int64_t batch, length, heads, dims, itemsize;
};

// Copies the heads of one token to `to`, dense.
void gather_heads(const std::byte* from, const Sizes& sizes, int64_t head_stride, int64_t element_stride,
                  std::byte* to) {
  for (int64_t h = 0; h < sizes.heads; h++) {
    for (int64_t e = 0; e < sizes.dims; e++, to += sizes.itemsize)
      std::memcpy(to, from + (h * head_stride + e * element_stride) * sizes.itemsize, sizes.itemsize);
  }
}

}  // namespace

void Rope::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  mx::array& out = outputs[0];
  TokenOffsets row_offsets = params_.offset;
  if (inputs.size() == 4) {
    cpu::wait_for(stream(), {inputs[3]});
    row_offsets = read_offsets(inputs[3], x, inputs[1], throws_runtime_error(function_));
  }
  cpu::allocate_for(out);
  if (out.size() == 0) return;

  const Sizes sizes = {x.shape(0), x.shape(1), x.shape(2), x.shape(3), int64_t(x.itemsize())};
  const int64_t token_stride = params_.heads_first ? sizes.dims : sizes.heads * sizes.dims;
  cpu::RopeTask task = {};
  task.y_head_stride = params_.heads_first ? sizes.length * sizes.dims : sizes.dims;
  task.heads = sizes.heads;
  task.half = sizes.dims / 2;
  task.traditional = params_.traditional;
  task.inverse = params_.inverse;
  const cpu::RowReader cos(inputs[1]), sin(inputs[2]);
  const size_t table_bytes = cos.row_bytes();
  const bool dense = last_axis_is_dense(x);
  const size_t heads_bytes = dense ? 0 : sizes.heads * sizes.dims * sizes.itemsize;
  cpu::enqueue_rows(stream(),
                    {sizes.batch * sizes.length, kNsPerRotated * sizes.heads * sizes.dims,
                     threads_for(sizes.batch * sizes.length, x.dtype()), 2 * table_bytes + heads_bytes},
                    [=, rotate = kernels_of(x).rope, offsets = std::move(row_offsets), strides = x.strides(),
                     x = x.data<std::byte>(), y = out.data<std::byte>()](int64_t index, std::byte* scratch) {
                      const int64_t n = index / sizes.length, s = index % sizes.length;
                      const int64_t position = offset_of(offsets, n) + s;
                      cpu::RopeTask token = task;
                      token.cos = reinterpret_cast<const float*>(cos.row(position, scratch));
                      token.sin = reinterpret_cast<const float*>(sin.row(position, scratch + table_bytes));
                      const std::byte* from = x + (n * strides[0] + s * strides[1]) * sizes.itemsize;
                      token.x_head_stride = strides[2];
                      if (!dense) {
                        gather_heads(from, sizes, strides[2], strides[3], scratch + 2 * table_bytes);
                        from = scratch + 2 * table_bytes;
                        token.x_head_stride = sizes.dims;
                      }
                      token.x = from;
                      const int64_t element = n * sizes.length * sizes.heads * sizes.dims + s * token_stride;
                      token.y = y + element * sizes.itemsize;
                      rotate(token);
                    });
}

}  // namespace tiny_llm_ext
