// The Python names: keywords, defaults and docstrings; no logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "attention/last_run.h"
#include "attention/support.h"
#include "attention/tiles.h"
#include "bindings/arguments.h"
#include "bindings/blocks.h"
#include "bindings/caches.h"
#include "bindings/errors.h"
#include "bindings/explanations.h"
#include "bindings/pages.h"
#include "bindings/quantized.h"
#include "bindings/rows.h"
#include "bindings/threads.h"
#include "bindings/weight_memory.h"
#include "core/checks.h"
#include "core/gpu.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"
#include "cpu/runtime/limits/bandwidth.h"
#include "cpu/runtime/limits/peak.h"
#include "mlx/version.h"
#include "tiny_llm_ext.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tiny_llm_ext;

namespace {

#define TINY_LLM_STRING(x) #x
#define TINY_LLM_VERSION(major, minor, patch) \
  TINY_LLM_STRING(major) "." TINY_LLM_STRING(minor) "." TINY_LLM_STRING(patch)

// attention, attention_reference and explain_attention take the same arguments.
#define TINY_LLM_ATTENTION_SIGNATURE(name, result)                                                           \
  "def " name                                                                                                \
  "(query: mlx.core.array, key: mlx.core.array, value: mlx.core.array, *, scale: float | None = None, "      \
  "mask: mlx.core.array | str | None = None, causal: bool = False, window: int | tuple[int, int] | None = "  \
  "None, "                                                                                                   \
  "softcap: float | None = None, sinks: mlx.core.array | None = None, "                                      \
  "q_lens: mlx.core.array | collections.abc.Sequence[int] | None = None, kv_start: mlx.core.array | "        \
  "collections.abc.Sequence[int] | None = "                                                                  \
  "None, "                                                                                                   \
  "kv_lens: mlx.core.array | collections.abc.Sequence[int] | None = None, cu_seqlens_q: mlx.core.array | "   \
  "collections.abc.Sequence[int] | None = None, cu_seqlens_k: mlx.core.array | "                             \
  "collections.abc.Sequence[int] | None = None, deterministic: bool = True, "                                \
  "batch_invariant: bool = False, schedule: str = 'v2', on_fallback: str = 'warn', isa: str | None = None, " \
  "threads: int | None = None, return_lse: bool = True, own_kernels: bool = True, "                          \
  "stream: mlx.core.Stream | mlx.core.Device | None = None) -> " result

template <class Function>
void define_attention(nb::module_& m, const char* name, const char* signature, Function function,
                      const char* doc) {
  m.def(
      name,
      [function, name](const mx::array& query, const mx::array& key, const mx::array& value,
                       std::optional<double> scale, nb::object mask, bool causal, nb::object window,
                       std::optional<double> softcap, std::optional<mx::array> sinks, nb::object q_lens,
                       nb::object kv_start, nb::object kv_lens, nb::object cu_seqlens_q,
                       nb::object cu_seqlens_k, bool, bool batch_invariant, std::string schedule,
                       std::string on_fallback, std::optional<std::string> isa, std::optional<int> threads,
                       bool return_lse, bool own_kernels, mx::StreamOrDevice stream) {
        const char* shown = std::string_view(name).ends_with("reference") ? "attention_reference"
                            : cu_seqlens_q.is_none()                      ? kFunction
                                                                          : kPackedFunction;
        AttentionOptions options = options_from(shown, scale, mask, causal, window, softcap, std::move(sinks),
                                                batch_invariant, std::move(schedule), std::move(on_fallback),
                                                std::move(isa), threads, return_lse, own_kernels, stream);
        options.q_lens = lengths_from(shown, "q_lens", q_lens, query.ndim());
        options.kv_start = lengths_from(shown, "kv_start", kv_start, query.ndim());
        options.kv_lens = lengths_from(shown, "kv_lens", kv_lens, query.ndim());
        options.cu_seqlens_q = lengths_from(shown, "cu_seqlens_q", cu_seqlens_q, 1);
        options.cu_seqlens_k = lengths_from(shown, "cu_seqlens_k", cu_seqlens_k, 1);
        return function(query, key, value, options);
      },
      "query"_a, "key"_a, "value"_a, nb::kw_only(), "scale"_a = nb::none(), "mask"_a = nb::none(),
      "causal"_a = false, "window"_a = nb::none(), "softcap"_a = nb::none(), "sinks"_a = nb::none(),
      "q_lens"_a = nb::none(), "kv_start"_a = nb::none(), "kv_lens"_a = nb::none(),
      "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(), "deterministic"_a = true,
      "batch_invariant"_a = false, "schedule"_a = "v2", "on_fallback"_a = "warn", "isa"_a = nb::none(),
      "threads"_a = nb::none(), "return_lse"_a = true, "own_kernels"_a = true, "stream"_a = nb::none(),
      nb::sig(signature), doc);
}

void define_attention_functions(nb::module_& m) {
  define_attention(
      m, "attention",
      TINY_LLM_ATTENTION_SIGNATURE("attention", "tuple[mlx.core.array, mlx.core.array | None]"), attention,
      "Fused attention: the output (B..., Hq, L, E) and, if asked for, the log-sum-exp (B..., Hq, L).\n\n"
      "Query is (B..., Hq, L, E), key and value are (B..., Hkv, S, E). With cu_seqlens_q, sequences are\n"
      "packed: query (T_q, Hq, E), key and value (T_k, Hkv, E), log-sum-exp (T_q, Hq); cu_seqlens_k\n"
      "defaults to cu_seqlens_q. `isa` and `threads` choose the\n"
      "CPU kernels and the number of threads for this call; own_kernels=False computes as on a GPU without\n"
      "kernels of ours.");
  define_attention(
      m, "attention_reference",
      TINY_LLM_ATTENTION_SIGNATURE("attention_reference", "tuple[mlx.core.array, mlx.core.array | None]"),
      attention_reference,
      "The same from ordinary MLX operations: O(L * S) memory, derivatives of every order.");
  define_attention(
      m, "explain_attention", TINY_LLM_ATTENTION_SIGNATURE("explain_attention", "dict[str, typing.Any]"),
      [](const mx::array& query, const mx::array& key, const mx::array& value,
         const AttentionOptions& options) { return to_dict(explain_attention(query, key, value, options)); },
      "What `attention` would do with these arguments. Runs nothing.");
  define_attention(
      m, "explain_attention_reference",
      TINY_LLM_ATTENTION_SIGNATURE("explain_attention_reference", "dict[str, typing.Any]"),
      [](const mx::array& query, const mx::array& key, const mx::array& value,
         const AttentionOptions& options) {
        return to_dict(explain_attention_reference(query, key, value, options));
      },
      "What `attention_reference` would do with these arguments. Runs nothing.");
  m.def(
      "flash_attention",
      [](const mx::array& query, const mx::array& key, const mx::array& value,
         const std::optional<mx::array>& mask, double scale, bool is_causal, int num_kv_heads, int num_heads,
         mx::StreamOrDevice stream) {
        return flash_attention(query, key, value, mask, scale, is_causal, num_kv_heads, num_heads, warn,
                               stream);
      },
      "query"_a, "key"_a, "value"_a, "mask"_a = nb::none(), "scale"_a = 1.0, "is_causal"_a = false,
      nb::kw_only(), "num_kv_heads"_a, "num_heads"_a, "stream"_a = nb::none(),
      "The course's flat form, float32 only: query (N, L, E), key and value (N_kv, S, E), mask (N, L, S) or "
      "None.");
  m.def(
      "explain_flash_attention",
      [](const mx::array& query, const mx::array& key, const mx::array& value,
         const std::optional<mx::array>& mask, double scale, bool is_causal, int num_kv_heads, int num_heads,
         mx::StreamOrDevice stream) -> nb::typed<nb::dict, nb::str, nb::any> {
        return to_dict(explain_flash_attention(query, key, value, mask, scale, is_causal, num_kv_heads,
                                               num_heads, stream));
      },
      "query"_a, "key"_a, "value"_a, "mask"_a = nb::none(), "scale"_a = 1.0, "is_causal"_a = false,
      nb::kw_only(), "num_kv_heads"_a, "num_heads"_a, "stream"_a = nb::none(),
      "What `flash_attention` would do with these arguments. Runs nothing. Memory layouts count as dense.");
}

void define_matrix_functions(nb::module_& m) {
  m.def("axpby", &axpby, "x"_a, "y"_a, "alpha"_a, "beta"_a, nb::kw_only(), "stream"_a = nb::none(),
        "alpha x + beta y, broadcasting, in the wider dtype of x and y.");
  m.def("linear", &linear, "x"_a, "w"_a, "bias"_a = nb::none(), nb::kw_only(), "stream"_a = nb::none(),
        "x (..., K) times the transposed w (N, K), plus bias (N,) if there is one: (..., N).\n\n"
        "All have one dtype: float32, float16 or bfloat16. Sums are float32, bias included, and rounded "
        "once.\n\n"
        "There are two orders of summation, three on AMX. The number of rows and the processor decide which\n"
        "one is taken, and so the last bits of a row; nothing else does.");
}

void define_introspection(nb::module_& m) {
  m.def(
      "last_run",
      [] {
        LastRun run = last_run();
        nb::dict d;
        d["path"] = run.path;
        d["tiles_visited"] = run.tiles_visited;
        d["tiles_total"] = run.tiles_total;
        d["splits"] = run.splits;
        d["isa"] = run.isa;
        d["threads"] = run.threads;
        d["key_tiles_visited"] = run.key_tiles_visited;
        d["key_tiles_total"] = run.key_tiles_total;
        d["backward_schedule"] = run.backward_schedule;
        return d;
      },
      nb::sig("def last_run() -> dict[str, typing.Any]"),
      "Counters of the latest attention in this process. A graph of MLX operations counts when it is built. "
      "Of a\n"
      "gradient tiles_visited is that of the pass for dQ, key_tiles_visited that of dK and dV.");
  m.def(
      "support",
      [] {
        std::vector<nb::dict> rows;
        for (const Support& row : support()) {
          nb::dict d;
          d["backend"] = row.backend;
          d["pass"] = row.pass;
          d["dtype"] = row.dtype;
          d["head_size"] = nb::make_tuple(row.head_size_min, row.head_size_max);
          rows.push_back(d);
        }
        return rows;
      },
      nb::sig("def support() -> list[dict[str, typing.Any]]"),
      "The cases that have a fused kernel, one row each.");
  m.def(
      "tile_counts",
      [](int64_t L, int64_t S, int64_t row_tile, int64_t key_tile, int64_t left, int64_t right,
         int64_t group) {
        if (L < 0 || S < 0 || row_tile < 1 || key_tile < 1 || group < 1) {
          reject("tile_counts", "sizes", "a negative length or an empty tile",
                 "L, S >= 0 and tiles, group >= 1");
        }
        auto limit = [](int64_t keys) { return keys < 0 ? kUnbounded : keys; };
        TileCounts counts = count_tiles(L, S, L, S, group, row_tile, key_tile, limit(left), limit(right));
        return std::pair{counts.visited, counts.total};
      },
      "L"_a, "S"_a, "row_tile"_a, "key_tile"_a, nb::kw_only(), "left"_a = -1, "right"_a = -1, "group"_a = 1,
      "Score tiles of one KV head that a kernel visits, and all of them. left, right: window, -1 for no "
      "limit.");
}

void define_machine(nb::module_& m) {
  m.def("cpu_isa", [] { return std::string(cpu::active_kernels().name); }, "The CPU instruction set in use.");
  m.def("cpu_isas", &cpu::available_isas, "The CPU instruction sets of this build and machine, best first.");
  m.def("set_batch_invariant", &cpu::set_batch_invariant, "on"_a,
        "Whether operations that this thread makes from now on are batch invariant on the CPU: the bits of a "
        "row\n"
        "do not depend on the number of rows beside it. Returns what held before.");
  m.def(
      "cpu_threads",
      [] {
        const cpu::Threads threads = cpu::active_threads();
        return std::pair{threads.prompts, threads.decoding};
      },
      "The numbers of threads that CPU kernels use: for prompts, and for decoding, where operations have "
      "few\n"
      "rows.");
  m.def(
      "explain_cpu_threads", [] { return cpu::explain_threads().reason; },
      "Why these are the numbers of threads, in a line.");
  m.def("set_cpu_threads", &cpu::set_threads, "threads"_a, "argument"_a = "threads",
        "Sets the numbers of threads of the process: '16' for prompts and decoding, or '16,8'. It acts on\n"
        "operations that are made afterwards. Errors name `argument`.");
  m.def(
      "peak",
      [](const std::string& isa, const std::string& dtype, int threads, double seconds) {
        if (threads < 1) reject("peak", "threads", std::to_string(threads), "at least 1");
        int element = dtype == "f32" ? 0 : dtype == "f16" ? 1 : dtype == "bf16" ? 2 : -1;
        if (element < 0) reject("peak", "dtype", "'" + dtype + "'", "'f32', 'f16' or 'bf16'");
        const cpu::Kernels& kernels = cpu::kernels_named(isa, "peak");
        nb::gil_scoped_release release;
        return cpu::measure_peak(kernels, static_cast<Element>(element), threads, seconds) / 1e9;
      },
      "isa"_a, "dtype"_a, "threads"_a = 1, "seconds"_a = 0.2,
      "GFLOP/s of multiply-adds on registers alone: the peak that benchmarks compare with.");
  m.def(
      "read_bandwidth",
      [](size_t bytes, int threads, double seconds) {
        nb::gil_scoped_release release;
        return cpu::read_bandwidth(bytes, threads, seconds) / 1e9;
      },
      "bytes"_a, "threads"_a = 1, "seconds"_a = 0.2,
      "GB/s at which `threads` threads together read a buffer of that size. It bounds the speed of "
      "decoding.");
  m.def(
      "load_library", [](mx::StreamOrDevice, const std::string& path) { gpu::load_library(path); },
      "device"_a, "path"_a,
      nb::sig("def load_library(device: mlx.core.Device | mlx.core.DeviceType, path: str) -> None"),
      "Load the Metal kernels from this folder instead of the package. Call it before the first kernel "
      "runs.\n"
      "Does nothing in a build without Metal.");
  m.attr("mlx_version") = TINY_LLM_VERSION(MLX_VERSION_MAJOR, MLX_VERSION_MINOR, MLX_VERSION_PATCH);
}

}  // namespace

NB_MODULE(_ext, m) {
  m.doc() = "Kernels for MLX: attention, products and row operations.";
  nb::module_::import_("mlx.core");  // brings in the array type
  define_errors(m);
  define_attention_functions(m);
  define_pages(m);
  define_matrix_functions(m);
  define_quantized(m);
  define_row_operations(m);
  define_cached_attention(m);
  define_decoder_block(m);
  define_packed_step(m);
  define_threads(m);
  define_weight_memory(m);
  define_introspection(m);
  define_machine(m);
}
