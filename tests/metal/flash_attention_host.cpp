// The host's side of a call, for Python: it takes the struct and the grid from the headers that dispatch
// takes them from.
#include "metal/launch.h"

using namespace tiny_llm_ext;

namespace {

// The name of the kernel, until the next call, and the sizes of grid and threadgroup.
const char* hand_over(const metal::Launch& launch, metal::Size* sizes) {
  static std::string kernel;
  kernel = launch.kernel;
  sizes[0] = launch.threadgroups;
  sizes[1] = launch.threads;
  return kernel.c_str();
}

}  // namespace

extern "C" {
int arguments_size() { return sizeof(AttentionArguments); }

void fill_arguments(AttentionArguments* arguments, const int64_t* mask_strides, int L, int S, int E,
                    int heads, int group, float scale, int causal, int mask_kind, int N, int keys_per_split) {
  *arguments = {
      mask_strides[0], mask_strides[1], mask_strides[2], mask_strides[3], L,         S, E,
      heads,           group,           scale,           causal,          mask_kind, N, keys_per_split};
}

const char* readable_attention(int N, int L, metal::Size* sizes) {
  return hand_over(metal::readable_attention(N, L), sizes);
}

const char* prefill_attention(int N, int L, int E, int element, metal::Size* sizes) {
  return hand_over(metal::prefill_attention(N, L, E, static_cast<cpu::Element>(element)), sizes);
}

const char* decode_attention(int N, int L, int E, int element, int splits, metal::Size* sizes) {
  return hand_over(metal::decode_attention(N, L, E, static_cast<cpu::Element>(element), splits), sizes);
}

const char* merge_attention(int N, int L, int element, metal::Size* sizes) {
  return hand_over(metal::merge_attention(N, L, static_cast<cpu::Element>(element)), sizes);
}
}
