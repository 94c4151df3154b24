// Reading of evaluated arrays of integers, whatever their width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "mlx/array.h"

namespace tiny_llm_ext {

// The element `offset` after the first; uint64 saturates.
inline int64_t integer_at(const mlx::core::array& x, int64_t offset) {
  using Val = mlx::core::Dtype::Val;
  switch (x.dtype().val()) {
    case Val::int8:
      return x.data<int8_t>()[offset];
    case Val::uint8:
      return x.data<uint8_t>()[offset];
    case Val::int16:
      return x.data<int16_t>()[offset];
    case Val::uint16:
      return x.data<uint16_t>()[offset];
    case Val::uint32:
      return x.data<uint32_t>()[offset];
    case Val::int64:
      return x.data<int64_t>()[offset];
    case Val::uint64: {
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      return static_cast<int64_t>(std::min(x.data<uint64_t>()[offset], kMax));
    }
    default:
      return x.data<int32_t>()[offset];
  }
}

}  // namespace tiny_llm_ext
