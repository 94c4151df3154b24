// A primitive that checks lengths and passes them through. It runs on the CPU, because a GPU cannot throw.
#include "attention/arguments/checked_lengths.h"

#include "attention/lengths.h"
#include "core/checks.h"
#include "cpu/runtime/dispatch.h"

namespace tiny_llm_ext {
namespace {

using Member = std::optional<mx::array> SequenceLengths::*;

// Inputs and outputs: the given ones of kLengthsArguments. The lengths of a rectangle have the batch shape;
// those of packed sequences have one axis, and mapped axes before it.
class CheckedLengths : public mx::Primitive {
 public:
  CheckedLengths(mx::Stream stream, const char* function, int64_t L, int64_t S, std::vector<Member> given)
      : mx::Primitive(stream), function_(function), L_(L), S_(S), given_(std::move(given)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    SequenceLengths lengths;
    for (size_t i = 0; i < inputs.size(); i++) lengths.*given_[i] = inputs[i];
    cpu::wait_for(stream(), inputs);
    mx::Shape batch = inputs[0].shape();
    if (lengths.cu_seqlens_q) batch.pop_back();
    read_sequences(lengths, batch, L_, S_, throws_runtime_error(function_));
    for (size_t i = 0; i < inputs.size(); i++) outputs[i].copy_shared_buffer(inputs[i]);
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(function_) + ": lengths are checked on the CPU");
  }

  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override {
    int size = 1;
    for (size_t i = 0; i < inputs.size(); i++)
      if (axes[i] >= 0) size = inputs[i].shape(axes[i]);
    std::vector<mx::array> mapped = inputs;
    for (size_t i = 0; i < inputs.size(); i++) {
      mx::Shape shape = inputs[i].shape();
      shape.insert(shape.begin(), size);
      mapped[i] = axes[i] >= 0 ? mx::moveaxis(inputs[i], axes[i], 0, stream())
                               : mx::broadcast_to(inputs[i], shape, stream());
    }
    return {apply(std::make_shared<CheckedLengths>(stream(), function_, L_, S_, given_), mapped),
            std::vector<int>(inputs.size(), 0)};
  }

  static std::vector<mx::array> apply(std::shared_ptr<CheckedLengths> primitive,
                                      const std::vector<mx::array>& inputs) {
    std::vector<mx::Dtype> dtypes;
    for (const mx::array& input : inputs) dtypes.push_back(input.dtype());
    auto shapes = primitive->output_shapes(inputs);
    return mx::array::make_arrays(std::move(shapes), dtypes, std::move(primitive), inputs);
  }

  const char* name() const override { return "tiny_llm_ext::CheckedLengths"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& that = static_cast<const CheckedLengths&>(other);
    return L_ == that.L_ && S_ == that.S_ && given_ == that.given_;
  }
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    std::vector<mx::Shape> shapes;
    for (const mx::array& input : inputs) shapes.push_back(input.shape());
    return shapes;
  }

 private:
  const char* function_;
  int64_t L_, S_;
  std::vector<Member> given_;
};

}  // namespace

AttentionInputs with_checked_lengths(const char* function, AttentionInputs inputs, mx::Stream stream) {
  if (!has_lengths(inputs)) return inputs;
  if (stream.device != mx::Device::cpu) stream = mx::default_stream(mx::Device::cpu);
  mx::Shape batch = batch_shape(inputs);
  const int64_t L = inputs.query.shape(-2), S = inputs.key.shape(-2);
  std::vector<Member> given;
  std::vector<mx::array> arrays;
  for (const LengthsArgument& argument : kLengthsArguments) {
    const auto& array = inputs.*argument.member;
    if (!array) continue;
    given.push_back(argument.member);
    arrays.push_back(
        mx::stop_gradient(inputs.packed() ? *array : mx::broadcast_to(*array, batch, stream), stream));
  }
  if (are_available(inputs)) {  // now: a check at evaluation would wait for the stream
    read_sequences(inputs, batch, L, S, throws_runtime_error(function));
  } else {
    arrays = CheckedLengths::apply(std::make_shared<CheckedLengths>(stream, function, L, S, given), arrays);
  }
  for (size_t i = 0; i < given.size(); i++) inputs.*given[i] = arrays[i];
  return inputs;
}

}  // namespace tiny_llm_ext
