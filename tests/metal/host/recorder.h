// The dispatches that the recording device received, and the callbacks that compile and run them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mlx/array.h"

namespace recorder {

namespace mx = mlx::core;

struct Pipeline {
  std::string kernel, source;
  std::vector<int32_t> constants;
};

struct Bound {
  int slot;
  std::weak_ptr<mx::array::Data> owner;
  char* address;
  int64_t bytes;  // up to the last element of the array; all are allocated
  bool writable;
};

struct Temporary {
  char* address;
  int64_t bytes;
};

struct Dispatch {
  Pipeline pipeline;
  std::vector<Bound> buffers;
  std::map<int, std::string> arguments;  // by slot
  std::vector<uint64_t> threadgroups, threads;
  std::vector<Temporary> temporaries;
};

// Set by the tests. Never destroyed, because they hold Python objects and Python ends first. `compile`
// returns how many threads a threadgroup may have, or throws.
inline auto& compile = *new std::function<int64_t(const Pipeline&)>;
inline auto& run = *new std::function<void(const Dispatch&)>;
inline std::string architecture = "applegpu_g13g";

// Runs the dispatches after the evaluation that made them has returned, as a GPU does.
void commit();

}  // namespace recorder
