// How much of a key/value cache is in use.
#pragma once

#include <cstdint>

namespace tiny_llm_ext {

// The first `length` tokens of a cache are valid. `caller_holds`: an earlier operation returned its arrays,
// with `length` tokens or more, and the caller has held them since. The memory after the tokens may then be
// free to write.
struct CacheState {
  int64_t length;
  bool caller_holds;

  bool operator==(const CacheState&) const = default;
};

}  // namespace tiny_llm_ext
