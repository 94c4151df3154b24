// Where the kernels of this installation lie: as texts that MLX compiles at run time, and as a metallib where
// the build had the compiler for it.
#pragma once

#include <filesystem>
#include <string>

namespace tiny_llm_ext::metal {

// The folder of the package. By default the one in which this module lies.
std::filesystem::path package_folder();
void set_package_folder(const std::filesystem::path& folder);

inline constexpr const char* kMetallib = "tiny_llm_ext";
std::filesystem::path metallib_of(const std::filesystem::path& folder);

// The text that has this kernel.
std::filesystem::path text_of(const std::string& kernel);

// Throws std::runtime_error if the file cannot be read.
std::string read_text(const std::filesystem::path& text);

}  // namespace tiny_llm_ext::metal
