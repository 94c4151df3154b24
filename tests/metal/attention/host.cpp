// The host's launches for Python, from the same headers as the dispatch.
#include <algorithm>

#include "metal/launch.h"
#include "metal/tuning.h"

using namespace tiny_llm_ext;

namespace {

// Returns the kernel's name, valid until the next call, and writes grid, threadgroup and features.
const char* export_launch(const metal::Launch& launch, metal::Size* sizes, int* features = nullptr) {
  static std::string kernel;
  kernel = launch.kernel;
  if (features) std::copy(launch.features.begin(), launch.features.end(), features);
  sizes[0] = launch.threadgroups;
  sizes[1] = launch.threads;
  return kernel.c_str();
}

Element element_of(int number) { return static_cast<Element>(number); }
MaskKind mask_of(int number) { return static_cast<MaskKind>(number); }

}  // namespace

extern "C" {
int arguments_size() { return sizeof(AttentionArguments); }
int fast_arguments_size() { return sizeof(FastAttentionArguments); }
int keys_per_split(const char* architecture) { return metal::tuning_of(architecture).keys_per_split; }
int split_count(const FastAttentionArguments* args) { return metal::split_count(*args); }

const char* readable_attention(int N, int L, metal::Size* sizes) {
  return export_launch(metal::readable_attention(N, L), sizes);
}

const char* prefill_attention(const FastAttentionArguments* args, int element, int mask, int sinks,
                              metal::Size* sizes, int* features) {
  return export_launch(metal::prefill_attention(*args, element_of(element), mask_of(mask), sinks), sizes,
                       features);
}

const char* decode_attention(const FastAttentionArguments* args, int element, int mask, int sinks,
                             metal::Size* sizes, int* features) {
  return export_launch(metal::decode_attention(*args, element_of(element), mask_of(mask), sinks), sizes,
                       features);
}

const char* merge_attention(const FastAttentionArguments* args, int element, metal::Size* sizes) {
  return export_launch(metal::merge_attention(*args, element_of(element)), sizes);
}
}
