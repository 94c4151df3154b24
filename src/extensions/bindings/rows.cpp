// Names, keywords, defaults and docstrings of the row operations.
#include "bindings/rows.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/variant.h>

#include "bindings/arguments.h"
#include "rows/row_operations.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {

void define_row_operations(nb::module_& m) {
  m.def("rms_norm", &rms_norm, "x"_a, "weight"_a, "eps"_a, nb::kw_only(), "stream"_a = nb::none(),
        "x (..., K) / sqrt(mean of x^2 along the last axis + eps) * weight (K,).");
  m.def(
      "rope",
      [](const mx::array& x, const mx::array& cos, const mx::array& sin, nb::handle offset, bool traditional,
         bool heads_first, mx::StreamOrDevice stream) {
        return rope(x, cos, sin, offsets_from("rope", offset), traditional, heads_first, stream);
      },
      "x"_a, "cos"_a, "sin"_a, "offset"_a, nb::kw_only(), "traditional"_a = false, "heads_first"_a = false,
      "stream"_a = nb::none(),
      nb::sig("def rope(x: mlx.core.array, cos: mlx.core.array, sin: mlx.core.array, "
              "offset: int | collections.abc.Sequence[int] | mlx.core.array, *, traditional: bool = False, "
              "heads_first: bool = False, stream: mlx.core.Stream | mlx.core.Device | None = None) "
              "-> mlx.core.array"),
      "x (N, S, H, D) with pairs of its last axis rotated, at the positions offset .. offset + S - 1. Row p "
      "of\n"
      "cos and sin (P, D / 2) float32 has the cosines and sines of the angles of position p.\n\n"
      "The offset is one number, or one for each of the N rows. Pair i is (2i, 2i + 1) if traditional, else\n"
      "(i, i + D / 2). With heads_first the result is (N, H, S, D).");
  m.def("silu_multiply", &silu_multiply, "gate"_a, "up"_a, nb::kw_only(), "stream"_a = nb::none(),
        "silu(gate) * up for two arrays of one shape and dtype.");
  m.def("quantized_rows", &quantized_rows, "ids"_a, "weight"_a, "scales"_a, "biases"_a, "group_size"_a,
        "bits"_a, nb::kw_only(), "stream"_a = nb::none(),
        "The rows ids (...) of the quantized weights (V, K * bits / 32) uint32: (..., K) in the dtype of\n"
        "scales and biases (V, K / group_size). An id outside 0 .. V - 1 gives a row of NaN.");
  m.def("argmax", &argmax, "x"_a, nb::kw_only(), "stream"_a = nb::none(),
        "The index (...) uint32 of the largest number along the last axis of x (..., V), the first of equal "
        "ones.\n"
        "NaN counts as larger than any number, as in mx.argmax on the CPU.");
  m.def("categorical", &categorical, "logits"_a, "uniform"_a, nb::kw_only(), "stream"_a = nb::none(),
        "An index (...) uint32 for each row of logits (..., V): the first one at which the running sum of\n"
        "e^x / sum e^x exceeds the row's number in uniform (...), float32 in [0, 1).");
  m.def(
      "top_k", &top_k, "x"_a, "k"_a, nb::kw_only(), "stream"_a = nb::none(),
      "The k largest numbers along the last axis of x (..., V) and their indices uint32: (..., k) each, in\n"
      "descending order, equal ones by index. NaN comes last.");
  m.def("logsumexp", &logsumexp, "x"_a, nb::kw_only(), "stream"_a = nb::none(),
        "log(sum(e^x)) along the last axis of x (..., V): (...) float32.");
}

}  // namespace tiny_llm_ext
