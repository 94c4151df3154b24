// Runs the attention kernels on CUDA, with the launches of the Metal host, and compares them with attention
// in double precision.
//
//     driver [--unset] [prefix]     runs the cases with this prefix; --unset leaves the outputs uninitialised
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device.h"

namespace metal_on_cuda {
namespace {

using namespace tiny_llm_ext;

template <class T>
std::vector<uint8_t> bytes_of(const T& arguments) {
  std::vector<uint8_t> bytes(sizeof(T));
  std::memcpy(bytes.data(), &arguments, sizeof(T));
  return bytes;
}

std::vector<double> doubles(const Buffer& buffer, Element element) {
  const std::vector<float> numbers = decoded(buffer.content(), element);
  return {numbers.begin(), numbers.end()};
}

AttentionArguments readable_arguments(const Problem& given) {
  const Case& call = given.call;
  const int64_t* strides = given.mask_strides;
  return {strides[0],  strides[1],  strides[2],
          strides[3],  call.L,      call.S,
          call.E,      call.heads,  call.heads / call.kv_heads,
          given.scale, call.causal, call.mask_kind};
}

FastAttentionArguments fast_arguments(const Problem& given) {
  const Case& call = given.call;
  const int64_t* strides = given.mask_strides;
  FastAttentionArguments args = {};
  args.query = {int64_t(call.heads) * call.L * call.E, int64_t(call.L) * call.E, call.E};
  args.key = {int64_t(call.kv_heads) * call.S * call.E, int64_t(call.S) * call.E, call.E};
  args.value = args.key;
  args.mask = {strides[0], strides[1], strides[2], strides[3]};
  args.N = call.batch * call.heads;
  args.heads = call.heads;
  args.group = call.heads / call.kv_heads;
  args.L = call.L, args.S = call.S, args.E = call.E;
  args.left = kUnboundedWindow;
  args.right = call.causal ? 0 : kUnboundedWindow;
  args.scale = given.scale;
  args.keys_per_split = (call.S + call.splits - 1) / call.splits;
  return args;
}

Answer run(const Problem& given, bool unset) {
  const Case& call = given.call;
  const Buffer query(encoded(given.query, call.element)), key(encoded(given.key, call.element)),
      value(encoded(given.value, call.element)),
      mask(given.mask.empty() ? std::vector<uint8_t>(1) : given.mask);
  const size_t rows = size_t(call.batch) * call.heads * call.L;
  const Output output(rows * call.E, call.element, unset), lse(rows, f32, unset);
  Slots slots = {};
  slots.at[kQuerySlot] = query.data;
  slots.at[kKeySlot] = key.data;
  slots.at[kValueSlot] = value.data;
  slots.at[kMaskSlot] = mask.data;
  slots.at[kOutputSlot] = output.data;
  slots.at[kLseSlot] = lse.data;

  if (call.kernel == Kernel::readable) {
    const Buffer arguments(bytes_of(readable_arguments(given)));
    slots.at[kArgumentsSlot] = arguments.data;
    dispatch(metal::readable_attention(call.batch * call.heads, call.L), slots);
    return {doubles(output, f32), doubles(lse, f32)};
  }

  const FastAttentionArguments args = fast_arguments(given);
  const Buffer arguments(bytes_of(args));
  slots.at[kArgumentsSlot] = arguments.data;
  const auto element = static_cast<tiny_llm_ext::Element>(call.element);
  const auto kind = static_cast<MaskKind>(call.mask_kind);
  if (call.kernel == Kernel::prefill) {
    dispatch(metal::prefill_attention(args, element, kind, false), slots);
  } else if (const int splits = metal::split_count(args); splits == 1) {
    dispatch(metal::decode_attention(args, element, kind, false), slots);
  } else {
    const Output parts(splits * rows * call.E, f32, unset), sums(splits * rows * 2, f32, unset);
    slots.at[kOutputSlot] = parts.data;
    slots.at[kLseSlot] = sums.data;
    dispatch(metal::decode_attention(args, element, kind, false), slots);
    Slots merged = {};
    merged.at[kPartsSlot] = parts.data;
    merged.at[kPartSumsSlot] = sums.data;
    merged.at[kMergedSlot] = output.data;
    merged.at[kMergedLseSlot] = lse.data;
    merged.at[kMergeArgumentsSlot] = arguments.data;
    dispatch(metal::merge_attention(args, element), merged);
  }
  return {doubles(output, call.element), doubles(lse, f32)};
}

// The tolerance of all tests: a correctly rounded kernel on normal inputs, or twice the error of dense
// attention in float.
double allowed(Element element, double dense) {
  const double floors[] = {2e-6, 2e-3, 1.6e-2};
  return std::max(floors[element], 2 * dense);
}

bool is_right(const Case& call, bool unset) {
  const Problem given = problem(call);
  const Answer expected = attention<double>(given), dense = attention<float>(given),
               found = run(given, unset);
  const double output = largest_error(found.output, expected.output);
  const double lse = largest_error(found.lse, expected.lse);
  const double output_limit = allowed(call.element, largest_error(dense.output, expected.output));
  const double lse_limit = allowed(f32, largest_error(dense.lse, expected.lse));
  const bool right = output <= output_limit && lse <= lse_limit;
  std::printf("%-28s O %8.2e of %8.2e  LSE %8.2e of %8.2e  %s\n", call.name.c_str(), output, output_limit,
              lse, lse_limit, right ? "right" : "WRONG");
  std::fflush(stdout);
  return right;
}

int run_all(int count, char** words) {
  bool unset = false;
  std::string prefix;
  for (int i = 1; i < count; i++) {
    if (std::string(words[i]) == "--unset") {
      unset = true;
    } else {
      prefix = words[i];
    }
  }
  int ran = 0, wrong = 0;
  for (const Case& call : cases()) {
    if (call.name.rfind(prefix, 0) != 0) continue;
    ran++;
    wrong += !is_right(call, unset);
  }
  std::printf("%d cases, %d wrong\n", ran, wrong);
  return wrong != 0 || ran == 0;
}

}  // namespace
}  // namespace metal_on_cuda

int main(int count, char** words) { return metal_on_cuda::run_all(count, words); }
