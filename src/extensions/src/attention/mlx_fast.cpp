// What MLX's operation lacks is added around it: other batch axes, rows without a key, masks that are causal
// too.
#include "attention/mlx_fast.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "attention/lengths.h"

namespace tiny_llm_ext {
namespace {

Verdict refused(const std::string& reason) { return {false, std::string(kMlxPath) + " " + reason}; }

// Whether keys after the position of some row are hidden. The last row has no later keys.
bool hides_later_keys(const AttentionInputs& inputs, const AttentionParams& params) {
  return params.right < inputs.query.shape(-2) - 1;
}

// The arrays of a call with one batch axis.
class OneBatchAxis {
 public:
  OneBatchAxis(const AttentionInputs& inputs, mx::Stream stream)
      : batch_(batch_shape(inputs)), stream_(stream) {}

  mx::array join(const mx::array& x) const {
    if (batch_.empty()) return mx::expand_dims(x, 0, stream_);
    return mx::flatten(x, 0, static_cast<int>(batch_.size()) - 1, stream_);
  }

  // A mask that is the same for the whole batch stays so.
  mx::array join_mask(const mx::array& mask) const {
    const int axes = static_cast<int>(mask.ndim()) - 3;
    if (mask.ndim() == 0) return mx::expand_dims(mask, 0, stream_);
    if (axes <= 0 || batch_.size() == 1) return mask;
    mx::Shape shape = mask.shape();
    if (std::all_of(shape.begin(), shape.begin() + axes, [](int size) { return size == 1; })) {
      return mx::flatten(mask, 0, axes - 1, stream_);
    }
    shape.erase(shape.begin(), shape.begin() + axes);
    shape.insert(shape.begin(), batch_.begin(), batch_.end());
    return join(mx::broadcast_to(mask, shape, stream_));
  }

  mx::array split(const mx::array& x) const {
    return batch_.empty() ? mx::squeeze(x, 0, stream_) : mx::unflatten(x, 0, batch_, stream_);
  }

 private:
  mx::Shape batch_;
  mx::Stream stream_;
};

// The arguments of MLX's operation, whose arrays have four axes.
struct MlxCall {
  mx::array query, key, value;
  std::optional<mx::array> mask, sinks;
  float scale;
  bool causal = false;

  // In the dtype of query if MLX has a kernel for it. Without one it would round the scores to that dtype.
  mx::array run(mx::Stream stream) const {
    const mx::Dtype dtype = query.dtype();
    if (fits(mask) && fits(sinks)) {
      const mx::array out = run_in(dtype, stream);
      if (dtype == mx::float32 || has_kernel(out)) return out;
    }
    return mx::astype(run_in(mx::float32, stream), dtype, stream);
  }

 private:
  // MLX takes masks and sinks of dtypes that promote to that of query.
  bool fits(const std::optional<mx::array>& x) const {
    return !x || mx::promote_types(x->dtype(), query.dtype()) == query.dtype();
  }

  static bool has_kernel(const mx::array& out) {
    return std::string_view(out.primitive().name()) == "ScaledDotProductAttention";
  }

  mx::array run_in(mx::Dtype dtype, mx::Stream stream) const {
    const auto cast = [&](const mx::array& x) { return mx::astype(x, dtype, stream); };
    return mx::fast::scaled_dot_product_attention(cast(query), cast(key), cast(value), scale,
                                                  causal ? "causal" : "", mask, sinks, false, stream);
  }
};

mx::array scalar(float value, const mx::array& like) { return mx::array(value, like.dtype()); }

mx::array visible(const mx::array& mask, mx::Stream stream) {
  return mask.dtype() == mx::bool_ ? mask : mx::logical_not(mx::isneginf(mask, stream), stream);
}

// `mask` where `where` is True; other scores are hidden.
mx::array hide_others(const mx::array& mask, const mx::array& where, mx::Stream stream) {
  if (mask.dtype() == mx::bool_) return mx::logical_and(mask, where, stream);
  return mx::where(where, mask, scalar(-std::numeric_limits<float>::infinity(), mask), stream);
}

// The scores of rows that are False in `where` become visible.
mx::array show_others(const mx::array& mask, const mx::array& where, mx::Stream stream) {
  if (mask.dtype() == mx::bool_) return mx::logical_or(mask, mx::logical_not(where, stream), stream);
  return mx::where(where, mask, scalar(0, mask), stream);
}

}  // namespace

Verdict mlx_computes(const AttentionInputs& inputs, const AttentionParams& params, bool return_lse) {
  const mx::array& query = inputs.query;
  const int S = inputs.key.shape(-2);
  if (return_lse) return refused("has no log-sum-exp");
  if (params.softcap > 0) return refused("has no softcap");
  if (has_lengths(inputs)) return refused("has no lengths of sequences");
  if (params.left < S - 1 || (params.right > 0 && hides_later_keys(inputs, params))) {
    return refused("has no window");
  }
  if (query.size() == 0 || S == 0) return refused("takes no empty arrays");
  return {true, ""};
}

mx::array mlx_graph(const AttentionInputs& inputs, const AttentionParams& params, mx::Stream stream) {
  const OneBatchAxis axes(inputs, stream);
  MlxCall call{axes.join(inputs.query),
               axes.join(inputs.key),
               axes.join(inputs.value),
               std::nullopt,
               inputs.sinks,
               params.scale.value_or(1 / std::sqrt(inputs.query.shape(-1)))};
  const int L = call.query.shape(2), S = call.key.shape(2);
  const bool causal = hides_later_keys(inputs, params);
  if (inputs.mask) {
    mx::array mask = axes.join_mask(*inputs.mask);
    if (causal) mask = hide_others(mask, mx::tri(L, S, S - L, mx::bool_, stream), stream);
    // MLX defines no result for a row that sees no key. Such a row attends to all keys, and zeros replace it:
    // so the gradient, too, is free of NaN.
    const mx::array sees_a_key = mx::any(visible(mask, stream), -1, true, stream);
    call.mask = show_others(mask, sees_a_key, stream);
    const mx::array out = call.run(stream);
    return axes.split(mx::where(sees_a_key, out, scalar(0, out), stream));
  }
  call.causal = causal;
  const int hidden_rows = causal ? std::max(L - S, 0) : 0;
  if (hidden_rows == 0) return axes.split(call.run(stream));
  call.query = mx::slice(call.query, {0, 0, hidden_rows, 0}, call.query.shape(), stream);
  const mx::array out = call.run(stream);
  mx::Shape shape = out.shape();
  shape[2] = hidden_rows;
  return axes.split(mx::concatenate({mx::zeros(shape, out.dtype(), stream), out}, 2, stream));
}

}  // namespace tiny_llm_ext
