// CPU evaluation of rotary embedding: token by token, each with the row of the table at its position.
#include <cstring>

#include "attention/inputs.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/dispatch.h"
#include "cpu/runtime/row_memory.h"
#include "cpu/runtime/scratch.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

constexpr double kNanosecondsToTurn = 0.2;

using RowOffsets = std::variant<int64_t, std::vector<int64_t>>;

int64_t offset_of(const RowOffsets& offsets, int64_t row) {
  auto number = std::get_if<int64_t>(&offsets);
  return number ? *number : std::get<std::vector<int64_t>>(offsets)[row];
}

struct Sizes {
  int64_t rows, length, heads, dims, itemsize;
};

// The heads of one token, dense in `room`.
void gather_heads(const std::byte* from, const Sizes& sizes, int64_t head_stride, int64_t element_stride,
                  std::byte* room) {
  for (int64_t h = 0; h < sizes.heads; h++) {
    for (int64_t e = 0; e < sizes.dims; e++, room += sizes.itemsize)
      std::memcpy(room, from + (h * head_stride + e * element_stride) * sizes.itemsize, sizes.itemsize);
  }
}

}  // namespace

void Rope::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const mx::array& x = inputs[0];
  mx::array& out = outputs[0];
  RowOffsets row_offsets = params_.offset;
  if (inputs.size() == 4) {
    cpu::wait_for(stream(), {inputs[3]});
    row_offsets = read_offsets(inputs[3], x, inputs[1], failure_of(function_));
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
  auto run = [=, kernel = kernels_of(x).rope, threads = threads_, x = x.data<std::byte>(),
              y = out.data<std::byte>(), strides = x.strides(), dense = last_axis_is_dense(x),
              cos = cpu::RowReader(inputs[1]), sin = cpu::RowReader(inputs[2]),
              offsets = std::move(row_offsets)] {
    const double cost = kNanosecondsToTurn * sizes.heads * sizes.dims;
    cpu::for_rows(sizes.rows * sizes.length, cost, threads, [&](int64_t begin, int64_t end) {
      const size_t table_bytes = cos.row_bytes();
      const size_t bytes = 2 * table_bytes + (dense ? 0 : sizes.heads * sizes.dims * sizes.itemsize);
      auto* room = static_cast<std::byte*>(cpu::thread_scratch(bytes));
      cpu::RopeTask token = task;
      for (int64_t index = begin; index < end; index++) {
        const int64_t n = index / sizes.length, s = index % sizes.length;
        const int64_t position = offset_of(offsets, n) + s;
        token.cos = reinterpret_cast<const float*>(cos.row(position, room));
        token.sin = reinterpret_cast<const float*>(sin.row(position, room + table_bytes));
        const std::byte* from = x + (n * strides[0] + s * strides[1]) * sizes.itemsize;
        token.x_head_stride = strides[2];
        if (!dense) {
          gather_heads(from, sizes, strides[2], strides[3], room + 2 * table_bytes);
          from = room + 2 * table_bytes;
          token.x_head_stride = sizes.dims;
        }
        token.x = from;
        const int64_t place = n * sizes.length * sizes.heads * sizes.dims + s * token_stride;
        token.y = y + place * sizes.itemsize;
        kernel(token);
      }
    });
  };
  cpu::enqueue(stream(), std::move(run));
}

}  // namespace tiny_llm_ext
