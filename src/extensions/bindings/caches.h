// Attention to caches, for Python, and its arguments.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "cached_attention.h"

namespace tiny_llm_ext {

// Keys, values and length of each, and perhaps CacheState::caller_holds.
using Cache =
    std::variant<std::tuple<mx::array, mx::array, int64_t>, std::tuple<mx::array, mx::array, int64_t, bool>>;
using Caches = std::vector<std::optional<Cache>>;

std::vector<std::optional<TokenCache>> caches_from(const Caches& caches);

// An int, or a sequence of ints. Throws an ArgumentError naming `function` for anything else.
TokenOffsets numbers_from(const char* function, nanobind::handle object);

void define_cached_attention(nanobind::module_& m);

}  // namespace tiny_llm_ext
