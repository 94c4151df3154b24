// Names, keywords, defaults and docstrings of the operations on pages.
#include "bindings/pages.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "bindings/arguments.h"
#include "bindings/explanations.h"
#include "core/checks.h"
#include "store_kvcache.h"
#include "tiny_llm_ext.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {
namespace {

#define TINY_LLM_PAGED_SIGNATURE(name, result)                                                              \
  "def " name                                                                                               \
  "(query: mlx.core.array, key_pages: mlx.core.array, value_pages: mlx.core.array, block_table: "           \
  "mlx.core.array, context_lens: mlx.core.array, *, layout: str = 'PHSE', scale: float | None = None, "     \
  "mask: mlx.core.array | str | None = None, causal: bool = False, window: int | tuple[int, int] | None = " \
  "None, softcap: float | None = None, sinks: mlx.core.array | None = None, q_lens: mlx.core.array | "      \
  "collections.abc.Sequence[int] | None = None, cu_seqlens_q: mlx.core.array | "                            \
  "collections.abc.Sequence[int] | None = None, hide_absent: bool = False, ids_checked: bool = False, "     \
  "return_lse: bool = False, "                                                                              \
  "deterministic: bool = True, batch_invariant: bool = False, schedule: str = 'v2', on_fallback: str = "    \
  "'warn', isa: str | None = None, threads: int | None = None, own_kernels: bool = True, "                  \
  "stream: mlx.core.Stream | mlx.core.Device | None = None) -> " result

PageLayout page_layout_from(const char* function, const std::string& name) {
  if (name == "PHSE") return PageLayout::heads_outside;
  if (name == "PSHE") return PageLayout::slots_outside;
  reject(function, "layout", "'" + name + "'", "'PHSE' or 'PSHE'");
}

template <class Function>
void define_attention_in_pages(nb::module_& m, const char* name, const char* signature, Function function,
                               const char* doc) {
  m.def(
      name,
      [function](const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
                 const mx::array& block_table, const mx::array& context_lens, const std::string& layout,
                 std::optional<double> scale, nb::object mask, bool causal, nb::object window,
                 std::optional<double> softcap, std::optional<mx::array> sinks, nb::object q_lens,
                 nb::object cu_seqlens_q, bool hide_absent, bool ids_checked, bool return_lse, bool,
                 bool batch_invariant, std::string schedule, std::string on_fallback,
                 std::optional<std::string> isa, std::optional<int> threads, bool own_kernels,
                 mx::StreamOrDevice stream) {
        constexpr const char* kShown = "paged_attention";
        PagedOptions options;
        options.layout = page_layout_from(kShown, layout);
        static_cast<AttentionOptions&>(options) =
            options_from(kShown, scale, mask, causal, window, softcap, std::move(sinks), batch_invariant,
                         std::move(schedule), std::move(on_fallback), std::move(isa), threads, return_lse,
                         own_kernels, stream);
        options.q_lens = lengths_from(kShown, "q_lens", q_lens, 1);
        options.cu_seqlens_q = lengths_from(kShown, "cu_seqlens_q", cu_seqlens_q, 1);
        options.hide_absent = hide_absent;
        options.ids_checked = ids_checked;
        return function(query, key_pages, value_pages, block_table, context_lens, options);
      },
      "query"_a, "key_pages"_a, "value_pages"_a, "block_table"_a, "context_lens"_a, nb::kw_only(),
      "layout"_a = "PHSE", "scale"_a = nb::none(), "mask"_a = nb::none(), "causal"_a = false,
      "window"_a = nb::none(), "softcap"_a = nb::none(), "sinks"_a = nb::none(), "q_lens"_a = nb::none(),
      "cu_seqlens_q"_a = nb::none(), "hide_absent"_a = false, "ids_checked"_a = false, "return_lse"_a = false,
      "deterministic"_a = true, "batch_invariant"_a = false, "schedule"_a = "v2", "on_fallback"_a = "warn",
      "isa"_a = nb::none(), "threads"_a = nb::none(), "own_kernels"_a = true, "stream"_a = nb::none(),
      nb::sig(signature), doc);
}

void define_paged_attention(nb::module_& m) {
  m.def("paged_attention", &paged_attention, "query"_a, "key_pages"_a, "value_pages"_a, "block_table"_a,
        "context_lens"_a, "scale"_a = 1.0, "is_causal"_a = false, nb::kw_only(), "num_kv_heads"_a,
        "num_heads"_a, "stream"_a = nb::none(),
        "Attention over keys and values in pages, the course's flat form: query (B * num_heads, L, E) and\n"
        "pages (P, num_kv_heads, page, E) float32, block_table (B, pages) and context_lens (B,) int32.\n\n"
        "Token t of sequence b is in slot t % page of page block_table[b][t // page]; an id outside\n"
        "0 .. P - 1 is an absent page, whose tokens are hidden.");
  define_attention_in_pages(
      m, "attention_in_pages",
      TINY_LLM_PAGED_SIGNATURE("attention_in_pages", "tuple[mlx.core.array, mlx.core.array | None]"),
      attention_in_pages,
      "The same for pages of one type, float32, float16 or bfloat16, which is that of query and result; and\n"
      "the log-sum-exp, if asked for. Sums are float32, and the pages are not copied.\n\n"
      "Query is (B, Hq, L, E), or (T_q, Hq, E) with cu_seqlens_q; layout is 'PHSE' or 'PSHE', by the axes "
      "of\n"
      "pages: P pages, H heads, S slots. An id of no page where a query would see its tokens is an error.\n"
      "With hide_absent, the tokens are hidden; with ids_checked, the caller looked for such ids. The other\n"
      "options are those of `attention`.");
  define_attention_in_pages(
      m, "explain_attention_in_pages",
      TINY_LLM_PAGED_SIGNATURE("explain_attention_in_pages", "dict[str, typing.Any]"),
      [](const mx::array& query, const mx::array& key_pages, const mx::array& value_pages,
         const mx::array& block_table, const mx::array& context_lens, const PagedOptions& options) {
        return to_dict(
            explain_attention_in_pages(query, key_pages, value_pages, block_table, context_lens, options));
      },
      "What `attention_in_pages` would do with these arguments. Runs nothing.");
}

void define_store_kvcache(nb::module_& m) {
  m.def(
      "store_kvcache",
      [](const mx::array& key, const mx::array& value, const mx::array& k_cache, const mx::array& v_cache,
         const mx::array& slot_mapping, const std::string& layout, mx::StreamOrDevice stream) {
        return store_kvcache(key, value, k_cache, v_cache, slot_mapping,
                             page_layout_from(kStoreKvCache, layout), stream);
      },
      "key"_a, "value"_a, "k_cache"_a, "v_cache"_a, "slot_mapping"_a, nb::kw_only(), "layout"_a = "PSHE",
      "stream"_a = nb::none(),
      "Write key and value (T, Hkv, E) to their slots of the pages, in place; returns the pages.\n\n"
      "Pages are (P, page, Hkv, E), or (P, Hkv, page, E) with layout='PHSE'. Token t goes to slot\n"
      "slot_mapping[t] % page of page slot_mapping[t] // page; -1 skips it. The arrays given share the\n"
      "memory of the result.");
}

}  // namespace

void define_pages(nb::module_& m) {
  define_paged_attention(m);
  define_store_kvcache(m);
}

}  // namespace tiny_llm_ext
