// Sizes of memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "mlx/array.h"

namespace tiny_llm_ext {

// Bytes of a dense array, or the product of sizes >= 0. Throws std::runtime_error above 2^62, as for memory
// that cannot be allocated: callers can add to the result.
int64_t bytes_of(const mlx::core::Shape& shape, mlx::core::Dtype dtype);
int64_t bytes_of(std::initializer_list<int64_t> sizes);

// Throws std::runtime_error; `bytes` is a number with its unit.
[[noreturn]] void refuse_to_allocate(const std::string& bytes);

}  // namespace tiny_llm_ext
