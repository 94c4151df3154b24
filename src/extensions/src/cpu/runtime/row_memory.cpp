// Addresses of rows, reuse of memory, and how many threads a number of rows is worth.
#include "cpu/runtime/row_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "attention/inputs.h"
#include "attention/tiles.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/thread_pool.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

namespace {

// Waking a thread takes up to 45 microseconds; less work than this is done before it has begun.
constexpr double kSharedNanoseconds = 20e3;
// What one turn at the counter of the pool should be worth.
constexpr double kItemNanoseconds = 5e3;

template <class Word>
void copy_words(const std::byte* from, int64_t stride, std::byte* to, int64_t count) {
  constexpr int64_t kBytes = sizeof(Word);
  for (int64_t e = 0; e < count; e++) {
    Word word;  // whatever the elements are
    std::memcpy(&word, from + e * stride * kBytes, kBytes);
    std::memcpy(to + e * kBytes, &word, kBytes);
  }
}

}  // namespace

RowReader::RowReader(const mx::array& x)
    : data_(x.data<std::byte>()),
      itemsize_(x.itemsize()),
      width_(x.shape(-1)),
      element_stride_(x.strides(-1)),
      dense_(last_axis_is_dense(x)) {
  const int last = static_cast<int>(x.ndim()) - 1;
  int64_t rows = 1;
  for (int axis = last - 1; axis >= 0; axis--) {
    if (x.shape(axis) == 1) continue;
    if (rows == 1) stride_ = x.strides(axis);
    if (x.strides(axis) != rows * stride_) {
      axes_ = mx::Shape(x.shape().begin(), x.shape().end() - 1);
      axis_strides_ = mx::Strides(x.strides().begin(), x.strides().end() - 1);
      return;
    }
    rows *= x.shape(axis);
  }
}

int64_t RowReader::offset_of(int64_t index) const {
  return axes_.empty() ? index * stride_ : batch_offset(index, axes_, axis_strides_);
}

const std::byte* RowReader::gather(int64_t index, std::byte* room) const {
  const std::byte* from = data_ + offset_of(index) * itemsize_;
  copy_strided(from, element_stride_, itemsize_, room, width_);
  return room;
}

void copy_strided(const std::byte* from, int64_t stride, int64_t itemsize, std::byte* to, int64_t count) {
  if (itemsize == 4) {
    copy_words<uint32_t>(from, stride, to, count);
  } else {
    copy_words<uint16_t>(from, stride, to, count);
  }
}

bool place_output(mx::array& out, std::initializer_list<const mx::array*> inputs) {
  for (const mx::array* input : inputs) {
    if (input->is_donatable() && input->flags().row_contiguous && input->dtype() == out.dtype() &&
        input->shape() == out.shape()) {
      out.copy_shared_buffer(*input);
      return true;
    }
  }
  allocate_for(out);
  return false;
}

void hold_inputs_once(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  for (mx::array& output : outputs) {
    // A tracer is differentiated after its evaluation.
    if (&output.inputs() != &inputs && !output.is_tracer()) output.inputs().clear();
  }
}

void for_rows(int64_t rows, double cost, int threads,
              const std::function<void(int64_t begin, int64_t end)>& work) {
  if (threads == 1 || rows == 1 || rows * cost < kSharedNanoseconds) return work(0, rows);
  const int64_t together = std::max<int64_t>(1, static_cast<int64_t>(kItemNanoseconds / cost));
  parallel_for(divide_up(rows, together), threads,
               [&](int64_t item) { work(item * together, std::min(rows, (item + 1) * together)); });
}

}  // namespace tiny_llm_ext::cpu
