// Names, keywords, defaults and docstrings of products with quantized weights.
#include "bindings/quantized.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "core/checks.h"
#include "cpu/quantized/paths.h"
#include "quantized_linear.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {
namespace {

using Triple = std::tuple<mx::array, mx::array, mx::array>;

std::vector<mx::array> through(const mx::array& x, const std::vector<Triple>& matrices, int group_size,
                               int bits, const std::optional<std::vector<mx::array>>& bias,
                               const std::optional<std::pair<mx::array, double>>& norm,
                               const std::optional<mx::array>& residual, bool gated, std::optional<int> split,
                               mx::StreamOrDevice stream) {
  if (bias && bias->size() != matrices.size()) {
    reject("quantized_linear", "bias", std::to_string(bias->size()) + " arrays",
           std::to_string(matrices.size()) + ", one for each matrix");
  }
  std::vector<QuantizedMatrix> all;
  for (const auto& [weight, scales, biases] : matrices) {
    all.push_back({weight, scales, biases, {}});
    if (bias) all.back().bias = (*bias)[all.size() - 1];
  }
  std::optional<FirstNorm> first;
  if (norm) first = {norm->first, norm->second};
  return quantized_linear(x, all, group_size, bits, first, residual, gated, split, stream);
}

// "AMX, bfloat16: 1-2, 3-5, 6-32, more", a line for each.
std::string row_orders() {
  using namespace cpu;
  std::string text;
  for (const RowOrders& orders : {kOrdersOnAmxOfBf16, kOrdersOnAmx, kOrdersOfAvx512, kOrdersElsewhere}) {
    text += std::string("- ") + orders.where + ": ";
    int first = 1;
    for (int last : orders.last) {
      if (last == 0) continue;
      text += std::to_string(first) + "-" + std::to_string(last) + ", ";
      first = last + 1;
    }
    text += "more\n";
  }
  return text;
}

}  // namespace

void define_quantized(nb::module_& m) {
  const std::string matmul_doc =
      "a (M, K) times the transposed quantized weights b (N, K * bits / 32) uint32: (M, N) like a.\n\n"
      "Scales and biases are (N, K / group_size) of the dtype of a: a weight is q * scale + bias. Bits are\n"
      "4 or 8, the group size 32, 64 or 128, and transpose_b must be True. Sums are float32.\n\n"
      "Up to 8 rows (16 with AVX-512, 32 on AMX) multiply the weights as they are; with more, bfloat16 rows\n"
      "multiply weights rounded to bfloat16 where the processor has such products. On AMX the rows of all\n"
      "orders below but the last, of bfloat16 the last two, become whole numbers, exact to 23 bits of the\n"
      "largest of 64 neighbours or of a group, and more rows of float32 and float16 two or three terms in\n"
      "bfloat16, exactly.\n"
      "Where rows are few, and of float32 and float16 on AMX always, the few elements (up to K / 64, from 4 "
      "to\n"
      "64) that are a hundred times larger than the others are multiplied one by one, with weights in "
      "float32:\n"
      "with weights of zero they leave nothing. Infinities are among them; a row with more of those is "
      "NaN.\n\n"
      "The order in which a row is added up, and so its last bits, depends on how many rows there are, and "
      "on\n"
      "no other row. Numbers of rows with one order:\n\n" +
      row_orders();
  m.def("quantized_matmul", &quantized_matmul, "scales"_a, "biases"_a, "group_size"_a, "bits"_a, "a"_a, "b"_a,
        "transpose_b"_a = false, "stream"_a = nb::none(), matmul_doc.c_str());
  m.def(
      "quantized_linear", &through, "x"_a, "matrices"_a, "group_size"_a, "bits"_a, nb::kw_only(),
      "bias"_a = nb::none(), "norm"_a = nb::none(), "residual"_a = nb::none(), "gated"_a = false,
      "split"_a = nb::none(), "stream"_a = nb::none(),
      "x (..., K) through several quantized matrices at once: a list of arrays (..., N) in the dtype of "
      "x.\n\n"
      "A matrix is (weight, scales, biases) as in `quantized_matmul`; all have one group size and number of\n"
      "bits, and one bias (N,) each if there are any. With gated there are two of one shape, and one "
      "result,\n"
      "silu(first) * second. A residual (..., N) is added to a single result. With a split the results are\n"
      "(..., N / split, split).\n\n"
      "A norm (weight, eps) is applied to x first, as by `rms_norm`.");
}

}  // namespace tiny_llm_ext
