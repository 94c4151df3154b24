// The host's launch of a quantized product for Python, from the same header as the dispatch.
#include "metal/quantized_launch.h"

using namespace tiny_llm_ext;

extern "C" {
int arguments_size() { return sizeof(QuantizedArguments); }

void fill_arguments(QuantizedArguments* arguments, int M, int N, int K, int group_size) {
  *arguments = metal::quantized_arguments(M, N, K, group_size);
}

// Returns the kernel's name, valid until the next call, and writes grid and threadgroup.
const char* quantized_matmul(int M, int N, int bits, int element, metal::Size* sizes) {
  static std::string kernel;
  const metal::Launch launch = metal::quantized_matmul(M, N, bits, static_cast<Element>(element));
  kernel = launch.kernel;
  sizes[0] = launch.threadgroups;
  sizes[1] = launch.threads;
  return kernel.c_str();
}
}
