// GPU evaluation: allocates the outputs and starts the kernels of the plan.
#include "attention/backends.h"
#include "attention/inputs.h"
#include "attention/last_run.h"
#include "metal/choose.h"
#include "metal/inputs.h"
#include "mlx/allocator.h"

namespace tiny_llm_ext {
namespace {

using metal::Arguments;
using metal::Binding;
using metal::Plan;

mx::array allocated(const mx::Shape& shape, mx::Dtype dtype) {
  mx::array array(shape, dtype, nullptr, {});
  array.set_data(mx::allocator::malloc(array.nbytes()));
  return array;
}

template <typename T>
Arguments as_arguments(const T& args, int slot) {
  return {slot, &args, sizeof args};
}

void run_readable(const Plan& plan, metal::KernelInputs& inputs, const std::vector<mx::array>& outputs,
                  mx::Stream stream) {
  const AttentionArguments args = inputs.bind_readable();
  dispatch(stream, plan.launch, inputs.bindings(), {{kOutputSlot, outputs[0]}, {kLseSlot, outputs[1]}},
           as_arguments(args, kArgumentsSlot), inputs.copies());
}

void run_fast(Plan plan, metal::KernelInputs& inputs, const std::vector<mx::array>& outputs,
              mx::Stream stream) {
  inputs.bind_fast(plan.args);
  std::vector<mx::array> results = outputs, temporaries = inputs.copies();
  if (plan.merge) {
    const int splits = static_cast<int>(plan.splits());
    mx::Shape parts = outputs[0].shape(), sums = outputs[1].shape();
    parts.insert(parts.begin(), splits);
    sums.insert(sums.begin(), splits);
    sums.push_back(2);
    results = {allocated(parts, mx::float32), allocated(sums, mx::float32)};
    temporaries.insert(temporaries.end(), results.begin(), results.end());
  }
  dispatch(stream, plan.launch, inputs.bindings(), {{kOutputSlot, results[0]}, {kLseSlot, results[1]}},
           as_arguments(plan.args, kArgumentsSlot), temporaries);
  if (plan.merge) {
    dispatch(stream, *plan.merge, {{kPartsSlot, results[0]}, {kPartSumsSlot, results[1]}},
             {{kMergedSlot, outputs[0]}, {kMergedLseSlot, outputs[1]}},
             as_arguments(plan.args, kMergeArgumentsSlot));
  }
}

}  // namespace

void Attention::eval_gpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  check_inputs(inputs);
  for (mx::array& output : outputs) output.set_data(mx::allocator::malloc(output.nbytes()));
  const AttentionInputs call = unpack(inputs, params_);
  const Problem problem = make_problem(call, params_, device());
  Explanation explanation = {};
  gpu::explain(problem, explanation);
  record_run(
      {explanation.path, explanation.tiles_visited, explanation.tiles_total, explanation.splits, "", 0});
  if (outputs[1].size() == 0) return;
  const Plan plan = *metal::choose(problem).plan;
  metal::KernelInputs bound(call, problem, stream());
  (plan.readable ? run_readable(plan, bound, outputs, stream()) : run_fast(plan, bound, outputs, stream()));
}

}  // namespace tiny_llm_ext
