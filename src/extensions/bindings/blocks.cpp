// Names, keywords and docstrings of `DecoderBlock` and `PackedStep`.
#include "block/decoder_block.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings/arguments.h"
#include "bindings/blocks.h"
#include "bindings/caches.h"
#include "block/packed_block.h"
#include "core/checks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {
namespace {

constexpr const char* kName = "DecoderBlock";
constexpr size_t kLayers = 4;  // of packed weights

using Format = std::pair<int, int>;  // group size and bits

// The parts, and the ids of the arrays they are made from.
struct Decoder {
  std::shared_ptr<const DecoderParts> parts;
  std::vector<std::uintptr_t> ids;
};

// What Python's `PackedStep` holds. Operations share the step itself: nanobind's pointer to it would keep the
// Python object, and MLX's thread, which may drop it last, would wait for the GIL.
struct StepHandle {
  std::shared_ptr<const PackedStep> step;
};

// Arrays in order.
class Reader {
 public:
  explicit Reader(const std::vector<mx::array>& arrays) : arrays_(arrays) {}

  const mx::array& next() { return arrays_[at_++]; }
  FirstNorm norm(double eps) { return {next(), eps}; }
  PackedLayer layer(size_t count, Format format) {
    PackedLayer layer = {{}, format.first, format.second, {}};
    for (size_t i = 0; i < count; i++) {
      const mx::array &weight = next(), &scales = next(), &biases = next();
      layer.matrices.push_back({weight, scales, biases, {}});
    }
    return layer;
  }

 private:
  const std::vector<mx::array>& arrays_;
  size_t at_ = 0;
};

std::optional<Decoder> decoder_of(const std::vector<mx::array>& arrays, const std::vector<Format>& formats,
                                  bool biased, const std::vector<double>& eps, int head_size,
                                  bool traditional) {
  if (formats.size() != kLayers)
    reject(kName, "formats", std::to_string(formats.size()), std::to_string(kLayers));
  if (eps.size() != 2 && eps.size() != 4) reject(kName, "eps", std::to_string(eps.size()), "2 or 4");
  if (head_size < 1) reject(kName, "head_size", std::to_string(head_size), "at least 1");
  const size_t expected = 21 + (biased ? 3 : 0) + eps.size() + 2;
  if (arrays.size() != expected)
    reject(kName, "arrays", std::to_string(arrays.size()), std::to_string(expected));
  Decoder decoder;
  for (const mx::array& array : arrays) {
    if (array.is_tracer()) return std::nullopt;
    decoder.ids.push_back(array.id());
  }
  Reader reader(arrays);
  PackedLayer heads = reader.layer(3, formats[0]), output = reader.layer(1, formats[1]);
  PackedLayer gate_up = reader.layer(2, formats[2]), down = reader.layer(1, formats[3]);
  for (QuantizedMatrix& matrix : heads.matrices) {
    if (biased) matrix.bias = reader.next();
  }
  heads.norm = reader.norm(eps[0]);
  gate_up.norm = reader.norm(eps[1]);
  std::optional<FirstNorm> query_norm, key_norm;
  if (eps.size() == 4) {
    query_norm = reader.norm(eps[2]);
    key_norm = reader.norm(eps[3]);
  }
  const mx::array &cos = reader.next(), &sin = reader.next();
  DecoderParts parts = {heads, query_norm, key_norm, cos, sin, output, gate_up, down, head_size, traditional};
  check_parts(parts);
  {
    nb::gil_scoped_release release;
    mx::eval(arrays);
    for (PackedLayer* layer : {&parts.heads, &parts.output, &parts.gate_up, &parts.down})
      layer->weights = cpu::place_weights(layer->matrices, layer->norm, layer->group_size, layer->bits, 1);
  }
  decoder.parts = std::make_shared<const DecoderParts>(std::move(parts));
  return decoder;
}

bool holds(const Decoder& decoder, const nb::list& arrays) {
  if (arrays.size() != decoder.ids.size()) return false;
  for (size_t i = 0; i < decoder.ids.size(); i++) {
    if (nb::cast<const mx::array&>(arrays[i]).id() != decoder.ids[i]) return false;
  }
  return true;
}

}  // namespace

void define_decoder_block(nb::module_& m) {
  if (adopt_type<Decoder>(m, kName)) return;
  nb::class_<Decoder>(
      m, kName,
      "A decoder block on quantized weights, for any number of new tokens: attention with caches "
      "and\nfeed-forward as one operation. Bitwise equal to its operations run one by one.")
      .def_static(
          "of", &decoder_of, "arrays"_a, "formats"_a, "biased"_a, "eps"_a, "head_size"_a, "traditional"_a,
          "The block made of these arrays; None if one of them is being traced.\n\n"
          "Weight, scales and biases of seven matrices, as in `quantized_matmul`: query, key, value, "
          "output,\n"
          "gate, up, down; if biased, the biases of query, key and value; the weights of the norms before\n"
          "attention and before feed-forward, and optionally those of query and key heads; cosine and sine,\n"
          "as in `rope`. Formats are (group size, bits) of heads, output, gate with up, and down. There is\n"
          "an eps for each norm. The block keeps the arrays as they are now.")
      .def("holds", &holds, "arrays"_a, nb::sig("def holds(self, arrays: list[mlx.core.array]) -> bool"),
           "Whether the block was made from these arrays, unchanged since then.")
      .def(
          "__call__",
          [](const Decoder& decoder, const mx::array& x, const Caches& caches, nb::handle offset,
             mx::StreamOrDevice stream) {
            return decoder_block(decoder.parts, x, caches_from(caches), numbers_from(kName, offset), stream);
          },
          "x"_a, "caches"_a, "offset"_a.none(), nb::kw_only(), "stream"_a = nb::none(),
          nb::sig("def __call__(self, x: mlx.core.array, "
                  "caches: collections.abc.Sequence[tuple[mlx.core.array, mlx.core.array, int] | "
                  "tuple[mlx.core.array, mlx.core.array, int, bool] | None], "
                  "offset: int | collections.abc.Sequence[int], *, "
                  "stream: mlx.core.Stream | mlx.core.Device | None = None) "
                  "-> tuple[mlx.core.array, list[tuple[mlx.core.array, mlx.core.array]]]"),
          "x (B, L, K) through the block: a result like x, and the caches with the new tokens.\n\n"
          "Caches and offset are those of `cached_attention`.")
      .def_static(
          "packed",
          [](const std::vector<const Decoder*>& blocks, const mx::array& x,
             const std::vector<mx::array>& key_pages, const std::vector<mx::array>& value_pages,
             const StepHandle& handle, mx::StreamOrDevice stream) {
            Blocks parts;
            for (const Decoder* block : blocks) parts.push_back(block->parts);
            PackedResult result =
                packed_decoder_blocks(parts, x, key_pages, value_pages, handle.step, stream);
            return std::tuple(result.x, result.key_pages, result.value_pages);
          },
          "blocks"_a, "x"_a, "key_pages"_a, "value_pages"_a, "step"_a, nb::kw_only(), "stream"_a = nb::none(),
          nb::sig("def packed(blocks: collections.abc.Sequence[DecoderBlock], x: mlx.core.array, "
                  "key_pages: collections.abc.Sequence[mlx.core.array], "
                  "value_pages: collections.abc.Sequence[mlx.core.array], step: PackedStep, *, "
                  "stream: mlx.core.Stream | mlx.core.Device | None = None) "
                  "-> tuple[mlx.core.array, list[mlx.core.array], list[mlx.core.array]]"),
          "x (1, T, K), the rows of a step, through the blocks: a result like x, key pages, value pages.\n\n"
          "Each block has pages (P, H, page, E), which are written in place, as by `store_kvcache`.");
}

void define_packed_step(nb::module_& m) {
  if (adopt_type<StepHandle>(m, kPackedStep)) return;
  nb::class_<StepHandle>(
      m, kPackedStep,
      "The new tokens of many sequences, whose keys and values are in pages: the rows of one "
      "forward pass.\nChecked here, once for all layers.")
      .def(
          "__init__",
          [](StepHandle* handle, std::vector<int64_t> new_tokens, std::vector<int64_t> context_lens,
             std::vector<std::vector<int32_t>> block_tables, int64_t page_size, int64_t num_pages) {
            new (handle) StepHandle{std::make_shared<const PackedStep>(
                PackedStepArguments{std::move(new_tokens), std::move(context_lens), std::move(block_tables),
                                    page_size, num_pages})};
          },
          "new_tokens"_a, "context_lens"_a, "block_tables"_a, nb::kw_only(), "page_size"_a, "num_pages"_a,
          nb::sig("def __init__(self, new_tokens: collections.abc.Sequence[int], "
                  "context_lens: collections.abc.Sequence[int], "
                  "block_tables: collections.abc.Sequence[collections.abc.Sequence[int]], *, "
                  "page_size: int, num_pages: int) -> None"),
          "Sequence b has new_tokens[b] rows, the last of its context_lens[b] tokens. Token t is in slot\n"
          "t % page_size of page block_tables[b][t // page_size], one of 0 .. num_pages - 1.")
      .def_prop_ro(
          "rows", [](const StepHandle& handle) { return handle.step->rows(); }, "The number of new tokens.")
      .def_prop_ro(
          "positions", [](const StepHandle& handle) { return handle.step->positions(); },
          "The position of each row in its sequence.")
      .def_prop_ro(
          "slots", [](const StepHandle& handle) { return handle.step->slots(); },
          "The slot of each row, counted over all pages.")
      .def_prop_ro(
          "block_table", [](const StepHandle& handle) { return handle.step->block_table(); },
          "int32 (B, pages), padded with -1.");
}

}  // namespace tiny_llm_ext
