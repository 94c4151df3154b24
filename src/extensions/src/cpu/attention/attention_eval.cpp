// CPU evaluation of Attention and PagedAttention.
#include "attention/inputs.h"
#include "attention/lengths.h"
#include "core/checks.h"
#include "core/strides.h"
#include "cpu/attention/forward_pass.h"
#include "cpu/attention/layout/head_rows.h"
#include "cpu/attention/layout/mask_and_pages.h"
#include "cpu/runtime/dispatch.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

std::vector<Sequence> cpu::wait_for_sequences(const AttentionInputs& call, mx::Stream stream) {
  if (!has_lengths(call)) return {};
  cpu::wait_for(stream, given_lengths(call));
  return read_sequences(call, batch_shape(call), call.query.shape(-2), call.key.shape(-2),
                        throws_runtime_error(function_of(call)));
}

std::vector<Sequence> cpu::wait_for_sequences(const PagedInputs& call, const PagedParams& params,
                                              mx::Stream stream) {
  cpu::Arrays integers = given_lengths(call.attention);
  integers.push_back(call.context_lens);
  if (!params.hide_absent && !params.ids_checked) integers.push_back(call.block_table);
  cpu::wait_for(stream, integers);
  return read_paged_sequences(call, params, throws_runtime_error(kPagedFunction));
}

void Attention::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  check_inputs(inputs);
  const AttentionInputs given = unpack(inputs, params_);
  std::vector<Sequence> sequences = cpu::wait_for_sequences(given, stream());
  if (given.packed()) {
    cpu::allocate_packed(outputs[0], true);
    cpu::allocate_packed(outputs[1], false);
  }
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  AttentionInputs call = unpack(arrays, params);
                  Problem problem = make_problem(call, params, device);
                  problem.sequences = sequences;
                  cpu::run_forward(call, problem, results[0], results[1]);
                });
}

void PagedAttention::eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
  const PagedInputs given(inputs, params_);
  std::vector<Sequence> sequences = cpu::wait_for_sequences(given, params_, stream());
  if (given.attention.packed()) {
    cpu::allocate_packed(outputs[0], true);
    cpu::allocate_packed(outputs[1], false);
  }
  cpu::dispatch(stream(), inputs, outputs,
                [params = params_, device = stream().device, sequences = std::move(sequences)](
                    const cpu::Arrays& arrays, cpu::Arrays& results) {
                  const PagedInputs paged(arrays, params);
                  AttentionInputs call = paged.attention;
                  mx::array o = results[0], lse = results[1];
                  if (params.num_heads > 0) {
                    for (mx::array* x : {&call.query, &o, &lse}) *x = split_first_axis(*x, params.num_heads);
                  }
                  Problem problem = make_problem(call, params, device);
                  problem.S = paged.slots_per_sequence();
                  problem.paged = true;
                  problem.sequences = sequences;
                  const cpu::PageTables pages(paged.block_table, call.key.shape(0), call.key.shape(2));
                  cpu::run_forward(call, problem, o, lse, &pages);
                });
}

}  // namespace tiny_llm_ext
