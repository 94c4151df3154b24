// Places arrays one after the other in one allocation.
#include "cpu/runtime/weight_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/checks.h"
#include "core/divide_up.h"
#include "cpu/runtime/allocate.h"
#include "mlx/ops.h"

namespace mx = mlx::core;

namespace tiny_llm_ext::cpu {
namespace {

constexpr const char* kWeightMemory = "WeightMemory";
constexpr int64_t kMaxBytes = int64_t{1} << 47;  // the user address space with 4-level paging

int64_t in_lines(const std::vector<int64_t>& sizes) {
  int64_t bytes = kCacheLine;  // to align the first array
  for (int64_t size : sizes) {
    if (size < 0 || size > kMaxBytes - bytes)
      reject(kWeightMemory, "sizes", std::to_string(size), "numbers of bytes");
    bytes += round_up(size, kCacheLine);
  }
  return bytes;
}

}  // namespace

WeightMemory::WeightMemory(const std::vector<int64_t>& sizes)
    : memory_(allocate_for_long(in_lines(sizes)), {1}, mx::uint8), end_(in_lines(sizes)) {
  auto* const begin = memory_.data<std::byte>();
  next_ = round_up(reinterpret_cast<int64_t>(begin), kCacheLine) - reinterpret_cast<int64_t>(begin);
}

mx::array WeightMemory::place(mx::Shape shape, mx::Dtype dtype) {
  std::lock_guard lock(mutex_);
  const int64_t left = std::max<int64_t>(end_ - next_, 0);
  int64_t bytes = dtype.size();
  bool fits = true;
  for (int size : shape) {
    fits = fits && size >= 0 && (bytes == 0 || size <= left / bytes);
    if (fits) bytes *= size;
  }
  if (!fits || bytes > left)
    reject(kWeightMemory, "shape", to_text(shape), std::to_string(left) + " bytes at most, which are left");
  mx::array placed(std::move(shape), dtype, nullptr, {});
  mx::Strides strides(placed.ndim(), 1);
  for (int axis = static_cast<int>(placed.ndim()) - 2; axis >= 0; axis--)
    strides[axis] = strides[axis + 1] * placed.shape(axis + 1);
  const bool vector = placed.size() <= 1 || placed.ndim() == 1;
  placed.copy_shared_buffer(memory_, strides, {true, true, vector}, placed.size(), next_ / dtype.size());
  placed.set_status(mx::array::Status::available);
  next_ += round_up(bytes, kCacheLine);
  return placed;
}

mx::array WeightMemory::copy(const mx::array& array) {
  mx::array dense = mx::contiguous(array);
  dense.eval();
  mx::array placed = place(dense.shape(), dense.dtype());
  const auto* const from = dense.data<std::byte>();
  auto* const to = placed.data<std::byte>();
  for_each_part(placed.nbytes(),
                [&](int64_t first, int64_t last) { std::memcpy(to + first, from + first, last - first); });
  return placed;
}

mx::array WeightMemory::read(int file, int64_t begin, mx::Shape shape, mx::Dtype dtype) {
  mx::array placed = place(std::move(shape), dtype);
  auto* const to = placed.data<std::byte>();
  for_each_part(placed.nbytes(), [&](int64_t done, int64_t end) {
    while (done < end) {
      const ssize_t count = pread(file, to + done, end - done, begin + done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        throw std::runtime_error(count < 0 ? std::strerror(errno) : "the file has become shorter");
      done += count;
    }
  });
  return placed;
}

}  // namespace tiny_llm_ext::cpu
