// The only file of this back end that includes MLX's internal headers.
#include "metal/device.h"

#include <map>
#include <mutex>
#include <stdexcept>

#include "metal/library.h"
#include "mlx/backend/metal/device.h"

namespace tiny_llm_ext::metal {
namespace {

mx::metal::Device& gpu() { return mx::metal::device(mx::Device::gpu); }

// MLX compiles sources without fast math, as the kernels need, and caches the libraries.
MTL::Library* library_of(const std::string& kernel) {
  const std::filesystem::path folder = package_folder();
  if (std::filesystem::exists(metallib_of(folder))) {
    return gpu().get_library(kMetallib, folder.string());
  }
  const std::filesystem::path text = text_of(kernel);
  return gpu().get_library(text.string(), [&] { return read_text(text); });
}

MTL::ComputePipelineState* pipeline_of(const Launch& launch) {
  mx::metal::MTLFCList constants;
  for (size_t i = 0; i < launch.features.size(); i++) {
    constants.emplace_back(&launch.features[i], MTL::DataTypeInt, i);
  }
  return gpu().get_kernel(launch.kernel, library_of(launch.kernel), launch.pipeline(), constants);
}

MTL::Size to_metal(const Size& size) { return MTL::Size(size.x, size.y, size.z); }

std::string find_obstacle(const Launch& launch) {
  try {
    const uint64_t most = pipeline_of(launch)->maxTotalThreadsPerThreadgroup();
    const uint64_t needed = uint64_t{launch.threads.x} * launch.threads.y * launch.threads.z;
    if (needed <= most) return "";
    return launch.kernel + " needs " + std::to_string(needed) +
           " threads in a threadgroup, this GPU allows " + std::to_string(most);
  } catch (const std::exception& error) {
    return launch.kernel + " cannot be compiled here: " + error.what();
  }
}

}  // namespace

const Tuning& tuning() { return tuning_of(gpu().get_architecture()); }

std::string obstacle_to(const Launch& launch) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // by pipeline
  std::lock_guard lock(mutex);
  auto [entry, is_new] = known.try_emplace(launch.pipeline());
  if (is_new) entry->second = find_obstacle(launch);
  return entry->second;
}

void dispatch(mx::Stream stream, const Launch& launch, const std::vector<Binding>& inputs,
              std::vector<Binding> outputs, const Arguments& arguments,
              const std::vector<mx::array>& temporaries) {
  if (std::string obstacle = obstacle_to(launch); !obstacle.empty()) throw std::runtime_error(obstacle);
  mx::metal::CommandEncoder& encoder = mx::metal::get_command_encoder(stream);
  encoder.set_compute_pipeline_state(pipeline_of(launch));
  for (const Binding& input : inputs) encoder.set_input_array(input.array, input.slot);
  for (Binding& output : outputs) encoder.set_output_array(output.array, output.slot);
  encoder.set_bytes(static_cast<const std::byte*>(arguments.bytes), static_cast<int>(arguments.size),
                    arguments.slot);
  encoder.dispatch_threadgroups(to_metal(launch.threadgroups), to_metal(launch.threads));
  for (const mx::array& temporary : temporaries) encoder.add_temporary(temporary);
}

}  // namespace tiny_llm_ext::metal
