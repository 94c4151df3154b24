// The way onto the worker thread of a CPU stream, which runs what is evaluated in order.
#pragma once

#include <functional>
#include <vector>

#include "mlx/array.h"

namespace tiny_llm_ext::cpu {

using Arrays = std::vector<mlx::core::array>;

// Gives the outputs memory now and calls work(inputs, outputs) when the data of the inputs is there. They are
// NaN if that throws.
void dispatch(mlx::core::Stream stream, const Arrays& inputs, Arrays& outputs,
              std::function<void(const Arrays& inputs, Arrays& outputs)> work);

// The same with outputs that have memory; what they hold when work() throws is its own business.
void dispatch_placed(mlx::core::Stream stream, const Arrays& inputs, const Arrays& outputs,
                     std::function<void(const Arrays& inputs, Arrays& outputs)> work);

// What a failed evaluation leaves behind: MLX hands the memory out again when the array is read once more.
void fill_with_nan(mlx::core::array& array);

// Returns once the data of these inputs of an evaluation is there. What is wrong with it can then be thrown
// on the evaluating thread: the output stays a graph, whose evaluation fails again. What the worker throws
// leaves an array that looks evaluated, and MLX waiting for good after some repetitions.
void wait_for(mlx::core::Stream stream, const Arrays& inputs);

// Calls work() there likewise. For kernels with little to do, to which `dispatch` is most of the cost: they
// take the addresses of their arrays beforehand, which MLX keeps until the work is done.
void enqueue(mlx::core::Stream stream, std::function<void()> work);

}  // namespace tiny_llm_ext::cpu
