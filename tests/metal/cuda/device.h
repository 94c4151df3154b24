// Memory of the GPU, and launches of kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "attention.h"
#include "metal/launch.h"

// In the translated kernels: the buffers by slot, and a kernel by the name of its pipeline.
struct Slots {
  void* at[16];
};
const void* kernel_named(const char* name);

namespace metal_on_cuda {

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

// A buffer with an allocation of exactly its size, so that memcheck finds accesses beyond its end.
class Buffer {
 public:
  explicit Buffer(const std::vector<uint8_t>& content) : Buffer(content.size()) {
    check(cudaMemcpy(data, content.data(), size_, cudaMemcpyHostToDevice));
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }

  std::vector<uint8_t> content() const {
    std::vector<uint8_t> copy(size_);
    check(cudaMemcpy(copy.data(), data, size_, cudaMemcpyDeviceToHost));
    return copy;
  }

  void* data = nullptr;

 protected:
  explicit Buffer(size_t size) : size_(size) { check(cudaMalloc(&data, size)); }

 private:
  size_t size_;
};

// An output is filled with NaN before a kernel runs, unless initcheck looks for unwritten memory.
struct Output : Buffer {
  Output(size_t count, Element element, bool unset) : Buffer(count * (element == f32 ? 4 : 2)) {
    if (!unset) check(cudaMemset(data, 0xff, count * (element == f32 ? 4 : 2)));
  }
};

inline void dispatch(const tiny_llm_ext::metal::Launch& launch, Slots slots) {
  const void* kernel = kernel_named(launch.pipeline().c_str());
  if (!kernel) {
    std::printf("%s is not built\n", launch.pipeline().c_str());
    std::exit(2);
  }
  const auto grid = launch.threadgroups, threads = launch.threads;
  void* arguments[] = {&slots};
  check(cudaLaunchKernel(kernel, {grid.x, grid.y, grid.z}, {threads.x, threads.y, threads.z}, arguments, 0,
                         nullptr));
  check(cudaDeviceSynchronize());
}

}  // namespace metal_on_cuda
