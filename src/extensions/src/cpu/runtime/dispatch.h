// Runs work on the worker thread of a CPU stream, in the order of evaluation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

using Arrays = std::vector<mlx::core::array>;

// Allocates the outputs that have no memory now, and calls work(inputs, outputs) once the inputs are
// computed. If that throws, the outputs are filled with NaN.
void dispatch(mlx::core::Stream stream, const Arrays& inputs, Arrays& outputs,
              std::function<void(const Arrays& inputs, Arrays& outputs)> work);

// The same for outputs that have memory. If work() throws, it leaves them in a defined state itself.
void dispatch_placed(mlx::core::Stream stream, const Arrays& inputs, const Arrays& outputs,
                     std::function<void(const Arrays& inputs, Arrays& outputs)> work);

// The memory of an output, for work that has no arrays.
struct OutputMemory {
  std::byte* data;
  int64_t elements;
  mlx::core::Dtype dtype;
};
OutputMemory memory_of(mlx::core::array& output);

// For the outputs of a failed evaluation, which can still be read.
void fill_with_nan(const OutputMemory& output);

// Waits until these inputs of an evaluation are computed, so that bad values can be thrown on the evaluating
// thread: the output then stays a graph, whose evaluation fails again. An exception on the worker thread
// leaves an array that counts as evaluated, and after some repetitions MLX hangs.
void wait_for(mlx::core::Stream stream, const Arrays& inputs);

// Calls work() in the same order, without arrays. For small kernels, where `dispatch` is most of the cost:
// they take the addresses of their arrays first. MLX keeps the arrays alive until the work is done.
void enqueue(mlx::core::Stream stream, std::function<void()> work);

}  // namespace tiny_llm_ext::cpu
