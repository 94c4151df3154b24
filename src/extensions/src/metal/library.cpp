// Finds and reads the sources of the kernels.
#include "metal/library.h"

#include <dlfcn.h>

#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>

namespace tiny_llm_ext::metal {
namespace {

std::mutex mutex;
std::filesystem::path chosen;

std::filesystem::path folder_of_this_module() {
  Dl_info module;
  if (!dladdr(reinterpret_cast<const void*>(&package_folder), &module)) {
    throw std::runtime_error("cannot find the folder of tiny_llm_ext, which has its Metal kernels");
  }
  return std::filesystem::absolute(module.dli_fname).parent_path();
}

}  // namespace

std::filesystem::path package_folder() {
  std::lock_guard lock(mutex);
  if (chosen.empty()) chosen = folder_of_this_module();
  return chosen;
}

void set_package_folder(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder / "metal") && !std::filesystem::exists(metallib_of(folder))) {
    throw std::runtime_error("load_library: no Metal kernels in " + folder.string());
  }
  std::lock_guard lock(mutex);
  chosen = std::filesystem::absolute(folder);
}

std::filesystem::path metallib_of(const std::filesystem::path& folder) {
  return folder / (std::string(kMetallib) + ".metallib");
}

std::filesystem::path text_of(const std::string& kernel) {
  const char* name = kernel.starts_with("flash_attention") ? "flash_attention.metal"
                     : kernel.starts_with("attention")     ? "attention.metal"
                                                           : "quantized_matmul.metal";
  return package_folder() / "metal" / name;
}

std::string read_text(const std::filesystem::path& text) {
  std::ifstream file(text);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file)
    throw std::runtime_error("cannot read " + text.string() + ", which this installation should have");
  return content.str();
}

}  // namespace tiny_llm_ext::metal
