// Reading of evaluated arrays of integers, whatever their width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "mlx/array.h"

namespace tiny_llm_ext {

// Calls use(read), where read(offset) is the element `offset` after the first; uint64 saturates.
template <class Use>
decltype(auto) with_integers(const mlx::core::array& x, Use use) {
  using Val = mlx::core::Dtype::Val;
  const auto plain = [&]<class T>(const T* data) {
    return use([data](int64_t offset) { return static_cast<int64_t>(data[offset]); });
  };
  switch (x.dtype().val()) {
    case Val::int8:
      return plain(x.data<int8_t>());
    case Val::uint8:
      return plain(x.data<uint8_t>());
    case Val::int16:
      return plain(x.data<int16_t>());
    case Val::uint16:
      return plain(x.data<uint16_t>());
    case Val::uint32:
      return plain(x.data<uint32_t>());
    case Val::int64:
      return plain(x.data<int64_t>());
    case Val::uint64:
      return use([data = x.data<uint64_t>()](int64_t offset) {
        constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
        return static_cast<int64_t>(std::min(data[offset], kMax));
      });
    default:
      return plain(x.data<int32_t>());
  }
}

inline int64_t integer_at(const mlx::core::array& x, int64_t offset) {
  return with_integers(x, [offset](auto read) { return read(offset); });
}

}  // namespace tiny_llm_ext
