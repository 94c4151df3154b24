// Moves, repeats and aligns the inputs of attention for mx.vmap.
#include "attention/transforms/mapping.h"

namespace tiny_llm_ext {
namespace {

bool is_cumulative(const OptionalInput& input) {
  return input.member ==
         static_cast<std::optional<mx::array> AttentionInputs::*>(&SequenceLengths::cu_seqlens_q);
}

bool has_packed_rows(const AttentionParams& params) {
  for (size_t i = 0; i < kOptionalInputs.size(); i++)
    if (is_cumulative(kOptionalInputs[i])) return params.present[i];
  return false;
}

// Moves the mapped axis of an optional input before its batch axes; `rank` counts those and the trailing
// axes.
mx::array mapped_axis_first(const mx::array& x, int axis, int rank, mx::Stream stream) {
  mx::array moved = mx::moveaxis(x, axis, 0, stream);
  std::vector<int> missing;
  for (int i = static_cast<int>(moved.ndim()); i < rank; i++)
    missing.push_back(1 + static_cast<int>(missing.size()));
  return missing.empty() ? moved : mx::expand_dims(moved, missing, stream);
}

}  // namespace

int mapped_size(const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axes[i] >= 0) return inputs[i].shape(axes[i]);
  }
  return 1;
}

mx::array mapped_or_repeated(const mx::array& x, int axis, int size, mx::Stream stream) {
  if (axis >= 0) return mx::moveaxis(x, axis, 0, stream);
  mx::Shape shape = x.shape();
  shape.insert(shape.begin(), size);
  return mx::broadcast_to(x, shape, stream);
}

std::vector<mx::array> map_optional_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                           size_t next, int batch_axes, const AttentionParams& params,
                                           mx::Stream stream) {
  // The lengths of packed sequences have an axis of sequences after the batch axes.
  const int length_axes = has_packed_rows(params) ? 1 : 0;
  std::vector<mx::array> mapped;
  for (size_t i = 0; i < kOptionalInputs.size(); i++) {
    if (!params.present[i]) continue;
    const int trailing = kOptionalInputs[i].trailing_axes;
    const int rank = batch_axes + (trailing == 0 ? length_axes : trailing);
    mapped.push_back(axes[next] >= 0 ? mapped_axis_first(inputs[next], axes[next], rank, stream)
                                     : inputs[next]);
    next++;
  }
  return mapped;
}

std::vector<mx::array> map_inputs(const std::vector<mx::array>& inputs, const std::vector<int>& axes,
                                  const AttentionParams& params, mx::Stream stream) {
  const int size = mapped_size(inputs, axes);
  std::vector<mx::array> mapped;
  for (int i = 0; i < 3; i++) mapped.push_back(mapped_or_repeated(inputs[i], axes[i], size, stream));
  const int batch_axes = static_cast<int>(mapped[0].ndim()) - 3;
  for (const mx::array& x : map_optional_inputs(inputs, axes, 3, batch_axes, params, stream))
    mapped.push_back(x);
  return mapped;
}

}  // namespace tiny_llm_ext
