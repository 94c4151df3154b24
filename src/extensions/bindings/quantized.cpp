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

std::vector<mx::array> linear_layers(const mx::array& x, const std::vector<Triple>& matrices, int group_size,
                                     int bits, const std::optional<std::vector<mx::array>>& bias,
                                     const std::optional<std::pair<mx::array, double>>& norm,
                                     const std::optional<mx::array>& residual, bool gated,
                                     std::optional<int> split, mx::StreamOrDevice stream) {
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

// The ranges of rows with one order of summation, a line for each table: "AMX, bfloat16: 1-2, 3-5, 6-32,
// more".
std::string summation_orders() {
  using namespace cpu;
  std::string text;
  for (const PathTable& table :
       {kAmxBf16Paths, kAmxF16Paths, kAmxF32Paths, kAvx512Bf16Paths, kAvx512Paths, kPaths}) {
    text += std::string("- ") + table.label + ": ";
    int first = 1;
    for (const RowRange& range : table.streamed) {
      if (range.max_rows == 0 || range.path == table.blocked) continue;
      text += std::to_string(first) + "-" + std::to_string(range.max_rows) + ", ";
      first = range.max_rows + 1;
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
      "Up to 8 rows (16 with AVX-512, 32 on AMX) are multiplied with exact weights. More bfloat16\n"
      "rows are multiplied with weights rounded to bfloat16, where the processor has bfloat16\n"
      "products. On AMX, 1 to 5 rows (float32: 1 to 8) become int8 digits, exact to 23 bits of the\n"
      "largest element of a quantization group, and more rows of float32 and float16 are split into\n"
      "two or three bfloat16 parts, exactly.\n\n"
      "Outliers, at most K / 64 elements of a row (from 4 to 64) that are hundreds of times larger than\n"
      "the others, are multiplied one by one, with weights in float32, where weights are exact as above:\n"
      "with weights of zero they leave no error. Infinities are outliers; a row with more of them than\n"
      "that is NaN. On AMX this holds for any number of rows of float32 and float16.\n\n"
      "The order of summation of a row, and so its last bits, depends on the number of rows and on no\n"
      "other row. Numbers of rows with one order:\n\n" +
      summation_orders();
  m.def("quantized_matmul", &quantized_matmul, "scales"_a, "biases"_a, "group_size"_a, "bits"_a, "a"_a, "b"_a,
        "transpose_b"_a = false, "stream"_a = nb::none(), matmul_doc.c_str());
  m.def("quantized_linear", &linear_layers, "x"_a, "matrices"_a, "group_size"_a, "bits"_a, nb::kw_only(),
        "bias"_a = nb::none(), "norm"_a = nb::none(), "residual"_a = nb::none(), "gated"_a = false,
        "split"_a = nb::none(), "stream"_a = nb::none(),
        "x (..., K) times several quantized matrices: a list of arrays (..., N) in the dtype of x.\n\n"
        "A matrix is (weight, scales, biases) as in `quantized_matmul`; all have the same group size and\n"
        "bits, and one bias (N,) each, or none has. With gated there are two matrices of one shape and\n"
        "one result, silu(first) * second. A residual (..., N) is added to a single result. With a split\n"
        "the results are (..., N / split, split).\n\n"
        "A norm (weight, eps) is applied to x first, as by `rms_norm`.");
}

}  // namespace tiny_llm_ext
