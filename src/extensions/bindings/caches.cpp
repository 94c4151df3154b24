// Names, keywords, defaults and docstring of attention to caches.
#include "bindings/caches.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings/arguments.h"
#include "core/checks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {

std::vector<std::optional<TokenCache>> caches_from(const Caches& caches) {
  std::vector<std::optional<TokenCache>> given;
  for (const std::optional<Cache>& cache : caches) {
    given.emplace_back();
    if (!cache) continue;
    std::visit(
        [&](const auto& of) {
          bool caller_holds = false;
          if constexpr (std::tuple_size_v<std::decay_t<decltype(of)>> == 4) caller_holds = std::get<3>(of);
          given.back() = {std::get<0>(of), std::get<1>(of), {std::get<2>(of), caller_holds}};
        },
        *cache);
  }
  return given;
}

TokenOffsets numbers_from(const char* function, nb::handle object) {
  Offsets offset = offsets_from(function, object);
  if (auto number = std::get_if<int64_t>(&offset)) return *number;
  if (auto numbers = std::get_if<std::vector<int64_t>>(&offset)) return std::move(*numbers);
  reject(function, "offset", "an array", "an integer, or one for each row");
}

void define_cached_attention(nb::module_& m) {
  m.def(
      "cached_attention",
      [](const mx::array& query, const mx::array& key, const mx::array& value, const Caches& caches,
         const mx::array& cos, const mx::array& sin, nb::handle offset, std::optional<double> scale,
         bool traditional, mx::StreamOrDevice stream) {
        return cached_attention(query, key, value, caches_from(caches), cos, sin,
                                numbers_from("cached_attention", offset), scale, traditional, stream);
      },
      "query"_a, "key"_a, "value"_a, "caches"_a, "cos"_a, "sin"_a, "offset"_a.none(), nb::kw_only(),
      "scale"_a = nb::none(), "traditional"_a = false, "stream"_a = nb::none(),
      nb::sig("def cached_attention(query: mlx.core.array, key: mlx.core.array, value: mlx.core.array, "
              "caches: collections.abc.Sequence[tuple[mlx.core.array, mlx.core.array, int] | "
              "tuple[mlx.core.array, mlx.core.array, int, bool] | None], "
              "cos: mlx.core.array, sin: mlx.core.array, offset: int | collections.abc.Sequence[int], *, "
              "scale: float | None = None, traditional: bool = False, "
              "stream: mlx.core.Stream | mlx.core.Device | None = None) "
              "-> tuple[mlx.core.array, list[tuple[mlx.core.array, mlx.core.array]]]"),
      "Causal attention of new tokens over caches: (B, L, Hq * E), and the caches with the new tokens.\n\n"
      "Query is (B, L, Hq, E), key and value are (B, L, Hkv, E). Query and key are rotated as by `rope`, at\n"
      "the positions offset .. offset + L - 1; `offset` is one number, or one per row. The caches are in "
      "the\n"
      "order of the rows: (keys, values, length), arrays (N, Hkv, capacity, E) with `length` valid tokens,\n"
      "is the cache of the next N rows; None is a row without a cache, whose result is 0. The new caches "
      "have\n"
      "L more tokens, in the same memory if no other array or running operation uses it.\n\n"
      "(keys, values, length, True): keys and values were returned by this function or by a `DecoderBlock`,\n"
      "with `length` tokens or more, and the caller has held them since. Memory after the tokens that no "
      "step\n"
      "uses is then written even if other arrays share it, so a step may start while the previous one is\n"
      "computed.");
}

}  // namespace tiny_llm_ext
