// Attention in MLX operations: the definition of the fused kernels' results, their gradient and their
// fallback.
#include <cmath>
#include <limits>

#include "attention/arguments/checked_lengths.h"
#include "attention/lengths.h"

namespace tiny_llm_ext {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Scores have the shape (B..., Hkv, group, L, S).
class Reference {
 public:
  Reference(const AttentionInputs& inputs, const AttentionParams& params, mx::Stream stream)
      : in_(inputs),
        params_(params),
        stream_(stream),
        Hkv_(inputs.key.shape(-3)),
        group_(inputs.query.shape(-3) / Hkv_),
        L_(inputs.query.shape(-2)),
        S_(inputs.key.shape(-2)) {
    if (in_.query.size() == 0) return;
    if (in_.packed()) {
      set_packed_positions();
    } else if (has_lengths(in_)) {
      set_positions();
    }
  }

  OutputAndLse run() {
    if (in_.query.size() == 0) return empty_result();
    mx::array q = mx::unflatten(to_f32(in_.query), -3, {Hkv_, group_}, stream_);
    mx::array k = mx::expand_dims(to_f32(in_.key), -3, stream_);
    mx::array v = mx::expand_dims(to_f32(in_.value), -3, stream_);
    if (valid_row_) q = choose(*valid_row_, q, 0);
    if (valid_key_) {
      mx::array slot = mx::swapaxes(*valid_key_, -1, -2, stream_);
      k = choose(slot, k, 0);
      v = choose(slot, v, 0);
    }
    mx::array s = scores(q, k);

    // The subtrahend keeps exp in range. It cancels, so it has no gradient.
    mx::array top = S_ > 0 ? mx::max(s, -1, true, stream_) : mx::full({1}, -kInfinity, mx::float32, stream_);
    std::optional<mx::array> sink;
    if (in_.sinks) {
      sink = broadcast_heads(*in_.sinks);
      if (valid_row_) sink = choose(*valid_row_, *sink, -kInfinity);
      top = mx::maximum(top, *sink, stream_);
    }
    top = mx::stop_gradient(choose(is_hidden(top), 0, top), stream_);
    mx::array p = mx::exp(mx::subtract(s, top, stream_), stream_);
    mx::array l = mx::sum(p, -1, true, stream_);
    if (sink) l = mx::add(l, mx::exp(mx::subtract(*sink, top, stream_), stream_), stream_);

    mx::array empty = mx::equal(l, scalar(0), stream_);
    mx::array divisor = choose(empty, 1, l);
    mx::array o = mx::divide(mx::matmul(p, v, stream_), divisor, stream_);
    mx::array lse = choose(empty, -kInfinity, mx::add(top, mx::log(divisor, stream_), stream_));
    o = mx::astype(mx::flatten(o, -4, -3, stream_), in_.query.dtype(), stream_);
    return {o, mx::flatten(mx::squeeze(lse, -1, stream_), -3, -2, stream_)};
  }

 private:
  // MLX 0.32.4 reads out of bounds when it copies an empty array with strides.
  OutputAndLse empty_result() const {
    mx::Shape o = in_.query.shape(), lse(o.begin(), o.end() - 1);
    o.back() = in_.value.shape(-1);
    return {mx::zeros(o, in_.query.dtype(), stream_), mx::zeros(lse, mx::float32, stream_)};
  }

  mx::array scalar(float value) const { return mx::array(value); }
  mx::array to_f32(const mx::array& x) const { return mx::astype(x, mx::float32, stream_); }
  mx::array choose(const mx::array& where, const mx::array& x, float otherwise) const {
    return mx::where(where, x, scalar(otherwise), stream_);
  }
  mx::array choose(const mx::array& where, float then, const mx::array& x) const {
    return mx::where(where, scalar(then), x, stream_);
  }
  mx::array is_hidden(const mx::array& x) const { return mx::isneginf(x, stream_); }

  mx::array all(const mx::array& a, const mx::array& b) const { return mx::logical_and(a, b, stream_); }
  mx::array range(int n) const { return mx::arange(n, mx::int32, stream_); }

  // (..., Hq) -> (..., Hkv, group, 1, 1)
  mx::array broadcast_heads(const mx::array& x) const {
    return mx::expand_dims(mx::unflatten(x, -1, {Hkv_, group_}, stream_), {-1, -2}, stream_);
  }

  // (...) -> (..., 1, 1, 1, 1)
  mx::array broadcast_batch(const mx::array& lengths) const {
    return mx::expand_dims(mx::astype(lengths, mx::int32, stream_), {-1, -2, -3, -4}, stream_);
  }

  void set_positions() {
    mx::array n_q = in_.q_lens ? broadcast_batch(*in_.q_lens) : mx::array(L_);
    mx::array start = in_.kv_start ? broadcast_batch(*in_.kv_start) : mx::array(0);
    mx::array n_k = in_.kv_lens ? broadcast_batch(*in_.kv_lens) : mx::subtract(mx::array(S_), start, stream_);
    mx::array row = mx::expand_dims(range(L_), -1, stream_);
    key_ = mx::subtract(mx::expand_dims(range(S_), 0, stream_), start, stream_);
    position_ = mx::add(row, mx::subtract(n_k, n_q, stream_), stream_);
    valid_row_ = mx::less(row, n_q, stream_);
    valid_key_ = all(mx::greater_equal(*key_, mx::array(0), stream_), mx::less(*key_, n_k, stream_));
  }

  // Packed rows see keys of their own sequence; positions and indices count within it.
  void set_packed_positions() {
    const mx::array &q = *in_.cu_seqlens_q, &k = *in_.cu_seqlens_k;
    const mx::array row_owner = owner(q, L_), key_owner = owner(k, S_);
    const auto sizes = [&](const mx::array& cu_seqlens) {
      const int count = cu_seqlens.shape(0) - 1;
      return mx::subtract(mx::slice(cu_seqlens, {1}, {count + 1}, stream_),
                          mx::slice(cu_seqlens, {0}, {count}, stream_), stream_);
    };
    const auto of_row = [&](const mx::array& x) { return mx::take(x, row_owner, 0, stream_); };
    const auto of_key = [&](const mx::array& x) { return mx::take(x, key_owner, 0, stream_); };
    const mx::array n_q = in_.q_lens ? *in_.q_lens : sizes(q);
    const mx::array start = in_.kv_start ? *in_.kv_start : mx::zeros_like(sizes(k), stream_);
    const mx::array n_k = in_.kv_lens ? *in_.kv_lens : mx::subtract(sizes(k), start, stream_);
    const mx::array row = mx::subtract(range(L_), of_row(q), stream_);
    key_ = mx::subtract(range(S_), mx::add(of_key(k), of_key(start), stream_), stream_);
    position_ =
        mx::expand_dims(mx::add(row, mx::subtract(of_row(n_k), of_row(n_q), stream_), stream_), -1, stream_);
    valid_row_ = mx::expand_dims(mx::less(row, of_row(n_q), stream_), -1, stream_);
    valid_key_ = mx::expand_dims(
        all(mx::greater_equal(*key_, mx::array(0), stream_), mx::less(*key_, of_key(n_k), stream_)), 0,
        stream_);
    own_keys_ =
        mx::equal(mx::expand_dims(row_owner, -1, stream_), mx::expand_dims(key_owner, 0, stream_), stream_);
  }

  // The sequence of each of `rows` packed rows: how many sequences after the first begin at or before it.
  mx::array owner(const mx::array& cu_seqlens, int rows) const {
    const mx::array next = mx::slice(cu_seqlens, {1}, {cu_seqlens.shape(0) - 1}, stream_);
    const mx::array begun = mx::less_equal(next, mx::expand_dims(range(rows), -1, stream_), stream_);
    return mx::sum(mx::astype(begun, mx::int32, stream_), -1, false, stream_);
  }

  // Which scores are visible; none if all are. A limit of L + S or more has no effect.
  std::optional<mx::array> visible() {
    std::optional<mx::array> seen;
    auto also = [&](const mx::array& condition) { seen = seen ? all(*seen, condition) : condition; };
    if (valid_row_) also(all(*valid_row_, *valid_key_));
    if (own_keys_) also(*own_keys_);
    bool left = params_.left < int64_t{L_} + S_, right = params_.right < int64_t{L_} + S_;
    if (left || right) {
      mx::array key = key_ ? *key_ : range(S_);
      mx::array position =
          position_ ? *position_ : mx::expand_dims(mx::arange(S_ - L_, S_, mx::int32, stream_), -1);
      mx::array distance = mx::subtract(key, position, stream_);
      if (left) also(mx::greater_equal(distance, mx::array(static_cast<int>(-params_.left)), stream_));
      if (right) also(mx::less_equal(distance, mx::array(static_cast<int>(params_.right)), stream_));
    }
    return seen;
  }

  // The mask with its head axis as (Hkv, group), like the scores.
  mx::array split_mask_heads() const {
    const mx::array& mask = *in_.mask;
    if (mask.ndim() < 3) return mask;
    if (mask.shape(-3) == 1) return mx::expand_dims(mask, -3, stream_);
    return mx::unflatten(mask, -3, {Hkv_, group_}, stream_);
  }

  mx::array scores(const mx::array& q, const mx::array& k) {
    float scale = params_.scale.value_or(1 / std::sqrt(static_cast<float>(in_.query.shape(-1))));
    mx::array s = mx::matmul(q, mx::swapaxes(k, -1, -2, stream_), stream_);
    s = mx::multiply(s, scalar(scale), stream_);
    if (params_.softcap > 0) {
      mx::array cap = scalar(params_.softcap);
      s = mx::multiply(cap, mx::tanh(mx::divide(s, cap, stream_), stream_), stream_);
    }
    // Hidden scores are replaced, not added to: a NaN of a hidden key must not survive.
    if (in_.mask && in_.mask->dtype() == mx::bool_) {
      s = choose(split_mask_heads(), s, -kInfinity);
    } else if (in_.mask) {
      mx::array mask = to_f32(split_mask_heads());
      s = choose(is_hidden(mask), -kInfinity, mx::add(s, mask, stream_));
    }
    if (auto seen = visible()) s = choose(*seen, s, -kInfinity);
    return s;
  }

  const AttentionInputs& in_;
  const AttentionParams& params_;
  mx::Stream stream_;
  int Hkv_, group_, L_, S_;
  // With lengths: the logical position of each row, the logical index of each key slot, and which are valid.
  std::optional<mx::array> position_, key_, valid_row_, valid_key_;
  std::optional<mx::array> own_keys_;  // of packed sequences: whether row and key are of the same one
};

}  // namespace

OutputAndLse reference_graph(const char* function, const AttentionInputs& inputs,
                             const AttentionParams& params, mx::Stream stream) {
  AttentionInputs checked = with_checked_lengths(function, inputs, stream);
  return Reference(checked, params, stream).run();
}

}  // namespace tiny_llm_ext
