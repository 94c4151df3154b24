// CPU evaluation of AttentionGradient.
#include "attention/inputs.h"
#include "attention/transforms/gradient.h"
#include "cpu/attention/backward/backward_pass.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext {

void AttentionGradient::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const AttentionInputs given = unpack(inputs, params_.attention);
  std::vector<Sequence> sequences = cpu::wait_for_sequences(given, stream());
  if (given.packed()) {
    for (mx::array& output : outputs)
      if (output.ndim() == given.query.ndim()) cpu::allocate_packed(output);  // all but dsinks
  }
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  const AttentionInputs call = unpack(arrays, params.attention);
                  Problem problem = make_problem(call, params.attention, device);
                  problem.sequences = sequences;
                  const auto* last = &arrays[arrays.size() - 4];
                  cpu::Gradients gradients;
                  auto next = results.begin();
                  if (params.query) gradients.dq = *next++;
                  if (params.key_value) gradients.dk = *next++, gradients.dv = *next++;
                  if (params.sinks) gradients.dsinks = *next++;
                  cpu::run_backward(call, {last[0], last[1], last[2], last[3]}, problem, gradients);
                });
}

}  // namespace tiny_llm_ext
