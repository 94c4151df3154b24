// The GPU as the router and the evaluation see it, without MLX's internal headers.
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

// Why the device cannot run this kernel; empty if it can. Compiles it, once.
std::string why_not(const Launch& launch);

struct Binding {
  int slot;
  mx::array array;
};

// The struct of plain numbers that every kernel takes.
struct Arguments {
  int slot;
  const void* bytes;
  size_t size;
};

// Starts a kernel on the stream. MLX keeps inputs and outputs of the primitive until it is done; temporaries
// are kept here.
void dispatch(mx::Stream stream, const Launch& launch, const std::vector<Binding>& inputs,
              std::vector<Binding> outputs, const Arguments& arguments,
              const std::vector<mx::array>& temporaries = {});

}  // namespace tiny_llm_ext::metal
