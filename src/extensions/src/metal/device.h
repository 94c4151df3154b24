// The GPU for the router and the evaluation, without MLX's internal headers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "metal/launch.h"
#include "metal/tuning.h"
#include "mlx/array.h"

namespace tiny_llm_ext::metal {

namespace mx = mlx::core;

const Tuning& tuning();

// The reason why the device cannot run this kernel, or an empty string. Compiles the kernel, once.
std::string obstacle_to(const Launch& launch);

struct Binding {
  int slot;
  mx::array array;
};

// The argument struct of a kernel.
struct Arguments {
  int slot;
  const void* bytes;
  size_t size;
};

// Starts a kernel on the stream. MLX keeps the primitive's inputs and outputs alive until the kernel has run;
// this function does so for temporaries.
void dispatch(mx::Stream stream, const Launch& launch, const std::vector<Binding>& inputs,
              std::vector<Binding> outputs, const Arguments& arguments,
              const std::vector<mx::array>& temporaries = {});

}  // namespace tiny_llm_ext::metal
