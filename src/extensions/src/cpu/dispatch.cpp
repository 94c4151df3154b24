// The only file of this back end that knows MLX's internal headers.
#include "cpu/dispatch.h"

#include <utility>

#include "cpu/allocate.h"
#include "mlx/backend/cpu/encoder.h"

namespace tiny_llm_ext::cpu {

namespace mx = mlx::core;

void dispatch(mx::Stream stream, const Arrays& inputs, Arrays& outputs,
              std::function<void(const Arrays& inputs, Arrays& outputs)> work) {
  for (mx::array& output : outputs) output.set_data(allocate(output.nbytes()));
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

}  // namespace tiny_llm_ext::cpu
