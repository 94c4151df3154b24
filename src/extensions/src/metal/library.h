// The kernels of this installation: sources that MLX compiles at run time, and a metallib if the build had
// Apple's compiler.
#pragma once

#include <filesystem>
#include <string>

namespace tiny_llm_ext::metal {

// The folder of the package, by default that of this module.
std::filesystem::path package_folder();
void set_package_folder(const std::filesystem::path& folder);

inline constexpr const char* kMetallib = "tiny_llm_ext";
std::filesystem::path metallib_of(const std::filesystem::path& folder);

// The source file of this kernel.
std::filesystem::path text_of(const std::string& kernel);

// Throws std::runtime_error if the file cannot be read.
std::string read_text(const std::filesystem::path& text);

}  // namespace tiny_llm_ext::metal
