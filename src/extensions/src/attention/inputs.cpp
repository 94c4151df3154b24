// The order of the primitive's inputs, and the Problem of a call.
#include "attention/inputs.h"

#include <cmath>

#include "attention/gpu_layout.h"
#include "attention/lengths.h"
#include "core/bytes.h"
#include "core/dtype.h"
#include "core/saturating.h"
#include "core/strides.h"

namespace tiny_llm_ext {

std::vector<mx::array> pack(const AttentionInputs& inputs) {
  std::vector<mx::array> arrays = {inputs.query, inputs.key, inputs.value};
  for (const OptionalInput& input : kOptionalInputs) {
    if (const auto& array = inputs.*input.member) arrays.push_back(*array);
  }
  return arrays;
}

AttentionInputs unpack(const std::vector<mx::array>& arrays, const AttentionParams& params) {
  AttentionInputs inputs(arrays[0], arrays[1], arrays[2]);
  for (size_t i = 0, next = 3; i < kOptionalInputs.size(); i++) {
    if (params.present[i]) inputs.*kOptionalInputs[i].member = arrays[next++];
  }
  return inputs;
}

PagedInputs::PagedInputs(const std::vector<mx::array>& arrays, const PagedParams& params)
    : attention(arrays[0], arrays[1], arrays[2]), block_table(arrays[3]), context_lens(arrays[4]) {
  std::vector<mx::array> others(arrays.begin(), arrays.begin() + 3);
  others.insert(others.end(), arrays.begin() + 5, arrays.end());
  attention = unpack(others, params);
}

const char* input_name(int n, const AttentionParams& params) {
  constexpr const char* kRequired[] = {"query", "key", "value"};
  if (n < 3) return kRequired[n];
  size_t i = 0;
  for (n -= 3; !params.present[i] || n-- > 0;) i++;
  return kOptionalInputs[i].name;
}

static MaskKind mask_kind(const std::optional<mx::array>& mask) {
  if (!mask) return MaskKind::none;
  if (mask->dtype() == mx::bool_) return MaskKind::boolean;
  return mask->dtype() == mx::float32   ? MaskKind::f32
         : mask->dtype() == mx::float16 ? MaskKind::f16
                                        : MaskKind::bf16;
}

static bool lacks_axis(const mx::array& mask, int axis_from_right, int64_t size) {
  return size > 1 && (static_cast<int>(mask.ndim()) < axis_from_right || mask.shape(-axis_from_right) == 1);
}

// Bytes of the copies that the GPU kernels need of mask, sinks and lengths.
static int64_t copied_optional_bytes(const AttentionInputs& inputs) {
  int64_t bytes = 0;
  for (const OptionalInput& input : kOptionalInputs) {
    const auto& array = inputs.*input.member;
    if (!array || inputs.packed() || array->status() == mx::array::unscheduled) continue;
    auto shape = gpu_copy_shape(*array, input.trailing_axes, batch_shape(inputs));
    if (shape) bytes += bytes_of(*shape, array->dtype());
  }
  return bytes;
}

Problem make_problem(const AttentionInputs& inputs, const AttentionParams& params, mx::Device device) {
  const mx::array &q = inputs.query, &k = inputs.key, &v = inputs.value;
  Problem problem = {};
  problem.B = saturating_product(batch_shape(inputs));
  problem.Hq = q.shape(-3);
  problem.Hkv = k.shape(-3);
  problem.L = q.shape(-2);
  problem.S = k.shape(-2);
  problem.E = q.shape(-1);
  problem.V = v.shape(-1);
  problem.dtype = element_of(q.dtype());
  problem.left = params.left;
  problem.right = params.right;
  problem.scale = params.scale.value_or(1 / std::sqrt(static_cast<float>(problem.E)));
  problem.softcap = params.softcap;
  problem.sinks = inputs.sinks.has_value();
  problem.mask = mask_kind(inputs.mask);
  problem.mask_broadcast =
      inputs.mask && (lacks_axis(*inputs.mask, 2, problem.L) || lacks_axis(*inputs.mask, 1, problem.S));
  problem.lengths = has_lengths(inputs);
  problem.packed = inputs.packed();
  problem.readable = params.readable;
  problem.batch_invariant = params.batch_invariant;
  problem.keys_outside = params.keys_outside;
  problem.backend = device == mx::Device::cpu ? Backend::cpu : Backend::gpu;
  for (const mx::array& x : {q, k, v}) {
    if (x.status() == mx::array::unscheduled) continue;
    if (problem.backend == Backend::cpu) {
      problem.copied_bytes += last_axis_is_dense(x) ? 0 : bytes_of(shape_without_repeats(x), x.dtype());
    } else {
      problem.copied_bytes += gpu_reads_in_place(x, batch_shape(inputs), false) ? 0 : x.nbytes();
      problem.readable_copied_bytes += gpu_reads_in_place(x, batch_shape(inputs), true) ? 0 : x.nbytes();
    }
  }
  if (problem.backend == Backend::gpu) {
    const int64_t optional_bytes = copied_optional_bytes(inputs);
    problem.copied_bytes += optional_bytes;
    problem.readable_copied_bytes += optional_bytes;
  }
  problem.kernels = params.kernels;
  problem.threads = params.threads;
  return problem;
}

}  // namespace tiny_llm_ext
