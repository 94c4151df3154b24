// The operations `argmax`, `top_k` and `logsumexp`.
#include "core/checks.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

void check_row(const char* function, const mx::array& x) {
  check_floating(function, "x", x);
  if (x.ndim() == 0 || x.shape(-1) == 0)
    reject(function, "x", to_text(x.shape()), "(..., V) with V of at least 1");
}

mx::Shape without_last(const mx::array& x) { return mx::Shape(x.shape().begin(), x.shape().end() - 1); }

mx::Shape with_last(const mx::array& x, int size) {
  mx::Shape shape = x.shape();
  shape.back() = size;
  return shape;
}

void check_top_k(const mx::array& x, int k) {
  check_row("top_k", x);
  if (k < 1 || k > x.shape(-1))
    reject("top_k", "k", std::to_string(k), "1 to " + std::to_string(x.shape(-1)) + ", the last axis of x");
}

std::pair<mx::array, mx::array> top_k_of(const mx::array& x, int k, mx::Stream stream) {
  auto outputs = mx::array::make_arrays({with_last(x, k), with_last(x, k)}, {x.dtype(), mx::uint32},
                                        std::make_shared<TopK>(stream, k), {x});
  return {outputs[0], outputs[1]};
}

template <class Operation>
mx::array reduced(const mx::array& x, mx::Dtype dtype, mx::Stream stream) {
  return mx::array(without_last(x), dtype, std::make_shared<Operation>(stream), {x});
}

}  // namespace

mx::array argmax(const mx::array& x, mx::StreamOrDevice stream) {
  check_row("argmax", x);
  return reduced<ArgMax>(x, mx::uint32, cpu_stream("argmax", stream));
}

mx::array logsumexp(const mx::array& x, mx::StreamOrDevice stream) {
  check_row("logsumexp", x);
  return reduced<LogSumExp>(x, mx::float32, cpu_stream("logsumexp", stream));
}

std::pair<mx::array, mx::array> top_k(const mx::array& x, int k, mx::StreamOrDevice stream) {
  check_top_k(x, k);
  return top_k_of(x, k, cpu_stream("top_k", stream));
}

std::pair<std::vector<mx::array>, std::vector<int>> ArgMax::vmap(const std::vector<mx::array>& inputs,
                                                                 const std::vector<int>& axes) {
  return {{reduced<ArgMax>(mapped_axis_first(inputs[0], axes[0], 0), mx::uint32, stream())}, {0}};
}

std::pair<std::vector<mx::array>, std::vector<int>> LogSumExp::vmap(const std::vector<mx::array>& inputs,
                                                                    const std::vector<int>& axes) {
  return {{reduced<LogSumExp>(mapped_axis_first(inputs[0], axes[0], 0), mx::float32, stream())}, {0}};
}

std::pair<std::vector<mx::array>, std::vector<int>> TopK::vmap(const std::vector<mx::array>& inputs,
                                                               const std::vector<int>& axes) {
  auto [numbers, indices] = top_k_of(mapped_axis_first(inputs[0], axes[0], 0), k_, stream());
  return {{numbers, indices}, {0, 0}};
}

// Derivatives go through the selected elements; the indices are constants.
std::vector<mx::array> TopK::graph(const std::vector<mx::array>& inputs) {
  mx::array indices = top_k_of(mx::stop_gradient(inputs[0], stream()), k_, stream()).second;
  return {mx::take_along_axis(inputs[0], indices, -1, stream()), indices};
}

std::vector<mx::array> LogSumExp::graph(const std::vector<mx::array>& inputs) {
  return {mx::logsumexp(mx::astype(inputs[0], mx::float32, stream()), -1, false, stream())};
}

bool TopK::is_equivalent(const mx::Primitive& other) const {
  return k_ == static_cast<const TopK&>(other).k_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> ArgMax::output_shapes(const std::vector<mx::array>& inputs) {
  check_row(function_, inputs[0]);
  return {without_last(inputs[0])};
}

std::vector<mx::Shape> LogSumExp::output_shapes(const std::vector<mx::array>& inputs) {
  check_row(function_, inputs[0]);
  return {without_last(inputs[0])};
}

std::vector<mx::Shape> TopK::output_shapes(const std::vector<mx::array>& inputs) {
  check_top_k(inputs[0], k_);
  return {with_last(inputs[0], k_), with_last(inputs[0], k_)};
}

}  // namespace tiny_llm_ext
