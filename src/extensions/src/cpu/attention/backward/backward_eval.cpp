// CPU evaluation of AttentionGradient and PagedAttentionGradient.
#include "attention/inputs.h"
#include "attention/transforms/paged_gradient.h"
#include "core/strides.h"
#include "cpu/attention/backward/backward_pass.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext {
namespace {

cpu::Gradients named(const WantedGradients& wanted, const cpu::Arrays& results) {
  cpu::Gradients gradients;
  auto next = results.begin();
  if (wanted.query) gradients.dq = *next++;
  if (wanted.key_value) gradients.dk = *next++, gradients.dv = *next++;
  if (wanted.sinks) gradients.dsinks = *next++;
  return gradients;
}

Cotangents last_inputs(const cpu::Arrays& arrays) {
  const auto* last = &arrays[arrays.size() - kCotangents];
  return {last[0], last[1], last[2], last[3]};
}

}  // namespace

void AttentionGradient::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const AttentionInputs given = unpack(inputs, params_.attention);
  std::vector<Sequence> sequences = cpu::wait_for_sequences(given, stream());
  if (given.packed()) {
    for (mx::array& output : outputs)
      if (output.ndim() == given.query.ndim()) cpu::allocate_packed(output, true);  // all but dsinks
  }
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  const AttentionInputs call = unpack(arrays, params.attention);
                  Problem problem = make_problem(call, params.attention, device);
                  problem.sequences = sequences;
                  cpu::Gradients gradients = named(params, results);
                  cpu::run_backward(call, last_inputs(arrays), problem, gradients);
                });
}

void PagedAttentionGradient::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const PagedInputs given(inputs, params_.attention);
  std::vector<Sequence> sequences = cpu::wait_for_sequences(given, params_.attention, stream());
  if (given.attention.packed() && params_.query) cpu::allocate_packed(outputs[0], true);
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  const PagedInputs paged(arrays, params.attention);
                  AttentionInputs call = paged.attention;
                  Cotangents cotangents = last_inputs(arrays);
                  cpu::Gradients gradients = named(params, results);
                  if (const int heads = params.attention.num_heads; heads > 0) {
                    for (mx::array* x :
                         {&call.query, &cotangents.o, &cotangents.lse, &cotangents.d_o, &cotangents.d_lse})
                      *x = split_first_axis(*x, heads);
                    if (gradients.dq) gradients.dq = split_first_axis(*gradients.dq, heads);
                  }
                  Problem problem = make_problem(call, params.attention, device);
                  problem.S = paged.slots_per_sequence();
                  problem.paged = true;
                  problem.sequences = sequences;
                  const cpu::PageTables pages(paged.block_table, call.key.shape(0), call.key.shape(2));
                  cpu::run_backward(call, cotangents, problem, gradients, &pages);
                });
}

}  // namespace tiny_llm_ext
