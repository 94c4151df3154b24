// MLX's Metal device, as its header declares it, for a machine without one: it records dispatches.
#include "mlx/backend/metal/device.h"

#include <fstream>
#include <list>
#include <sstream>
#include <stdexcept>

#include "recorder.h"

namespace MTL {

class Library {
 public:
  std::string source;
};

}  // namespace MTL

namespace recorder {
namespace {

struct Compiled : MTL::ComputePipelineState {
  Pipeline pipeline;
  int64_t most_threads;
};

std::map<std::string, MTL::Library> libraries;                        // by name, as MLX keeps them
std::map<std::pair<MTL::Library*, std::string>, Compiled> pipelines;  // by the name of the pipeline

Dispatch current;
std::vector<Dispatch> dispatched;
std::vector<mx::array> temporaries;

Bound bound(const mx::array& array, int slot, int64_t offset, bool writable) {
  if (!array.data_shared_ptr()) throw std::logic_error("a bound array has no memory");
  int64_t elements = array.size() > 0;
  for (int axis = 0; axis < static_cast<int>(array.ndim()); axis++) {
    elements += (array.shape(axis) - 1) * array.strides(axis);
  }
  const int64_t bytes = elements * static_cast<int64_t>(array.itemsize());
  mx::allocator::Buffer buffer = array.buffer();
  char* address = const_cast<char*>(array.data<char>()) + offset;
  const char* end = static_cast<char*>(buffer.raw_ptr()) + mx::allocator::allocator().size(buffer);
  if (address + bytes > end) {
    throw std::logic_error("slot " + std::to_string(slot) + ": the array has " + std::to_string(bytes) +
                           " bytes, its memory only " + std::to_string(end - address));
  }
  return {slot, array.data_shared_ptr(), address, bytes, writable};
}

std::vector<uint64_t> sizes(const MTL::Size& size) { return {size.width, size.height, size.depth}; }

}  // namespace

void commit() {
  std::vector<Dispatch> todo = std::move(dispatched);
  dispatched.clear();
  for (const Dispatch& dispatch : todo) {
    for (const Bound& buffer : dispatch.buffers) {
      if (buffer.owner.expired()) {
        throw std::logic_error(dispatch.pipeline.kernel + ": the buffer in slot " +
                               std::to_string(buffer.slot) + " was freed before the kernel ran");
      }
    }
    run(dispatch);
  }
  temporaries.clear();
}

}  // namespace recorder

namespace MTL {

NS::UInteger ComputePipelineState::maxTotalThreadsPerThreadgroup() const {
  return static_cast<const recorder::Compiled*>(this)->most_threads;
}

void ComputeCommandEncoder::setComputePipelineState(ComputePipelineState* pipeline) {
  recorder::current.pipeline = static_cast<recorder::Compiled*>(pipeline)->pipeline;
}

void ComputeCommandEncoder::setBytes(const void* bytes, NS::UInteger length, NS::UInteger slot) {
  recorder::current.arguments[static_cast<int>(slot)] = std::string(static_cast<const char*>(bytes), length);
}

}  // namespace MTL

namespace mlx::core::metal {

ResidencySets::ResidencySets(MTL::Device* device) : device_(device) {}
ResidencySets::~ResidencySets() = default;

Device::Device() : residency_sets_(nullptr), arch_(recorder::architecture) {}
Device::~Device() = default;

Device& device(mlx::core::Device) {
  static Device only;
  return only;
}

// A metallib of the tests is the source of its kernels.
MTL::Library* Device::get_library(const std::string& name, const std::string& path) {
  return get_library(name, {}, [&] {
    std::ifstream file(path + "/" + name + ".metallib");
    if (!file) throw std::runtime_error("no library " + name + " in " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  });
}

MTL::Library* Device::get_library(const std::string& name, const CompileOptions& options,
                                  const std::function<std::string()>& builder) {
  if (options.math_mode != MathMode::Safe)
    throw std::logic_error(name + ": the kernels need safe mathematics");
  if (auto known = recorder::libraries.find(name); known != recorder::libraries.end()) return &known->second;
  std::string source = builder();  // may throw, and then there is no library
  return &(recorder::libraries[name] = {source});
}

MTL::ComputePipelineState* Device::get_kernel(const std::string& base_name, MTL::Library* library,
                                              const std::string& hash_name, const MTLFCList& constants,
                                              const std::vector<MTL::Function*>&) {
  std::vector<int32_t> values;
  for (const auto& [value, type, index] : constants) {
    if (type != MTL::DataTypeInt || index != values.size())
      throw std::logic_error("constants: 0, 1, ..., all int");
    values.push_back(*static_cast<const int32_t*>(value));
  }
  const std::string& name = hash_name.empty() ? base_name : hash_name;
  auto [entry, is_new] = recorder::pipelines.try_emplace({library, name});
  recorder::Compiled& compiled = entry->second;
  if (is_new) {
    compiled.pipeline = {base_name, library->source, values};
    try {
      compiled.most_threads = recorder::compile(compiled.pipeline);
    } catch (...) {
      recorder::pipelines.erase(entry);
      throw;
    }
  }
  if (compiled.pipeline.kernel != base_name || compiled.pipeline.constants != values) {
    throw std::logic_error("two pipelines share the name " + name);
  }
  return &compiled;
}

CommandEncoder& get_command_encoder(Stream) {
  static CommandEncoder only(device(mlx::core::Device::gpu), 0,
                             device(mlx::core::Device::gpu).residency_sets());
  return only;
}

CommandEncoder::CommandEncoder(Device& device, int, ResidencySets& sets)
    : device_(device), residency_sets_(sets) {}
CommandEncoder::~CommandEncoder() = default;

MTL::ComputeCommandEncoder* CommandEncoder::get_command_encoder() {
  static MTL::ComputeCommandEncoder only;
  return &only;
}

void CommandEncoder::set_input_array(const array& a, int slot, int64_t offset) {
  recorder::current.buffers.push_back(recorder::bound(a, slot, offset, false));
}

void CommandEncoder::set_output_array(array& a, int slot, int64_t offset) {
  recorder::current.buffers.push_back(recorder::bound(a, slot, offset, true));
}

void CommandEncoder::add_temporary(array temporary) {
  if (recorder::dispatched.empty()) throw std::logic_error("a temporary without a dispatch");
  recorder::dispatched.back().temporaries.push_back(
      {temporary.data<char>(), static_cast<int64_t>(temporary.nbytes())});
  recorder::temporaries.push_back(std::move(temporary));
}

void CommandEncoder::dispatch_threadgroups(MTL::Size grid, MTL::Size group) {
  recorder::current.threadgroups = recorder::sizes(grid);
  recorder::current.threads = recorder::sizes(group);
  recorder::dispatched.push_back(std::move(recorder::current));
  recorder::current = {};
}

}  // namespace mlx::core::metal
