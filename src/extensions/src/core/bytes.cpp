// Products of sizes, with their check.
#include "core/bytes.h"

#include <stdexcept>

#include "core/saturating.h"

namespace tiny_llm_ext {

static int64_t checked_bytes(int64_t bytes) {
  constexpr int64_t kMaxBytes = int64_t{1} << 62;
  if (bytes > kMaxBytes) refuse_to_allocate(std::to_string(kMaxBytes) + " bytes or more");
  return bytes;
}

int64_t bytes_of(const mlx::core::Shape& shape, mlx::core::Dtype dtype) {
  return checked_bytes(saturating_product({saturating_product(shape), dtype.size()}));
}

int64_t bytes_of(std::initializer_list<int64_t> sizes) { return checked_bytes(saturating_product(sizes)); }

void refuse_to_allocate(const std::string& bytes) {
  throw std::runtime_error("tiny_llm_ext: out of memory: cannot allocate " + bytes);
}

}  // namespace tiny_llm_ext
