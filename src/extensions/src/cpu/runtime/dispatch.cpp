// The only file of the CPU back end that includes MLX's internal headers.
#include "cpu/runtime/dispatch.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "cpu/runtime/allocate.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/device.h"
#include "mlx/stream.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

OutputMemory memory_of(mx::array& output) {
  return {output.data<std::byte>(), static_cast<int64_t>(output.size()), output.dtype()};
}

void fill_with_nan(const OutputMemory& output) {
  const auto fill = [&output]<class T>(T nan) {
    std::fill_n(reinterpret_cast<T*>(output.data), output.elements, nan);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (output.dtype == mx::float32) fill(kNan);
  if (output.dtype == mx::float16) fill(mx::float16_t(kNan));
  if (output.dtype == mx::bfloat16) fill(mx::bfloat16_t(kNan));
}

void dispatch(mx::Stream stream, const Arrays& inputs, Arrays& outputs,
              std::function<void(const Arrays& inputs, Arrays& outputs)> work) {
  for (mx::array& output : outputs)
    if (!output.data_shared_ptr()) allocate_for(output);
  dispatch_placed(stream, inputs, outputs, [work = std::move(work)](const Arrays& arrays, Arrays& results) {
    try {
      work(arrays, results);
    } catch (...) {
      for (mx::array& result : results) fill_with_nan(memory_of(result));
      throw;
    }
  });
}

void dispatch_placed(mx::Stream stream, const Arrays& inputs, const Arrays& outputs,
                     std::function<void(const Arrays& inputs, Arrays& outputs)> work) {
  auto weak = [](const Arrays& arrays) {
    Arrays copies;
    for (const mx::array& array : arrays) copies.push_back(mx::array::unsafe_weak_copy(array));
    return copies;
  };
  mx::cpu::get_command_encoder(stream).dispatch(
      [work = std::move(work), arrays = weak(inputs), results = weak(outputs)]() mutable {
        work(arrays, results);
      });
}

void wait_for(mx::Stream stream, const Arrays& inputs) {
  // Within an evaluation, status `evaluated` means only that the work was dispatched, even if
  // is_available() is true.
  const auto is_computed = [](const mx::array& input) { return input.status() == mx::array::available; };
  if (std::all_of(inputs.begin(), inputs.end(), is_computed)) return;
  if (mx::is_available(mx::Device::gpu)) {
    // The stream may wait for GPU work that has not been committed yet.
    for (mx::Stream other : mx::get_streams()) {
      if (other.device != mx::Device::gpu) continue;
      try {
        mx::synchronize(other);
      } catch (const std::runtime_error&) {
        // A stream of another thread, which this evaluation does not depend on.
      }
    }
  }
  mx::synchronize(stream);
}

void enqueue(mx::Stream stream, std::function<void()> work) {
  mx::cpu::get_command_encoder(stream).dispatch(std::move(work));
}

}  // namespace tiny_llm_ext::cpu
