// The dense product of one instruction set against its definition in double; memory ends at guard pages.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/interface/isa.h"
#include "guarded.h"
#include "matrix.h"

namespace tiny_llm_ext::tests {
namespace {

using cpu::Kernels;
using cpu::LinearKernel;
using cpu::LinearTask;

struct Sizes {
  Element element;
  int64_t M, N, K;
};

// The problem with that number. Its sizes are random unless given; with given sizes rows are contiguous.
struct LinearCase {
  Element element;
  int64_t M, N, K;
  bool has_bias;
  Guard guard;
  Matrix x, w, bias;

  explicit LinearCase(int number, std::optional<Sizes> sizes = {}) {
    std::mt19937 generator(number);
    std::normal_distribution<double> normal;
    const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(generator); };
    element = static_cast<Element>(number % kElements);
    M = 1 + below(number % 4 ? 25 : 200);
    N = below(97);
    K = number % 5 ? below(700) : 32 * below(20);
    if (sizes) element = sizes->element, M = sizes->M, N = sizes->N, K = sizes->K;
    has_bias = below(2);
    guard = below(2) ? Guard::after : Guard::before;
    const auto draw = [&](int64_t rows, int64_t columns) {
      Matrix matrix{rows, columns, columns + (sizes || below(2) ? 0 : below(7)), {}};
      for (int64_t i = 0; i < rows * columns; ++i)
        matrix.values.push_back(rounded(element, normal(generator)));
      return matrix;
    };
    x = draw(M, K);
    w = draw(N, K);
    bias = draw(1, N);
  }

  int64_t y_stride() const { return N + 3; }

  std::string name() const {
    return std::to_string(M) + " x " + std::to_string(N) + " x " + std::to_string(K) +
           (has_bias ? " with bias" : "") + ", element type " + std::to_string(static_cast<int>(element));
  }
};

// Rows of the product from `first` on, y_stride apart.
Guarded multiply(const LinearKernel& kernel, const LinearCase& c, int64_t first, int64_t rows) {
  const Guarded x = write(c.x, c.element, c.guard), w = write(c.w, c.element, c.guard);
  const Guarded bias = write(c.bias, c.element, c.guard);
  Guarded y(((rows - 1) * c.y_stride() + c.N) * bytes_of(c.element), c.guard);
  const LinearTask task = {.x = x.as<std::byte>() + first * c.x.stride * bytes_of(c.element),
                           .x_row_stride = c.x.stride,
                           .w = w.as<void>(),
                           .w_row_stride = c.w.stride,
                           .bias = c.has_bias ? bias.as<void>() : nullptr,
                           .y = y.as<void>(),
                           .y_row_stride = c.y_stride(),
                           .rows = rows,
                           .outputs = c.N,
                           .K = c.K};
  Guarded packed(kernel.packed_bytes(task), Guard::after, 64);
  kernel.pack(task, packed.as<void>());
  Guarded scratch(kernel.scratch_bytes(task), Guard::after, 64);
  kernel.run(task, packed.as<void>(), scratch.as<void>());
  return y;
}

void test_case(const LinearKernel& kernel, const LinearCase& c) {
  const Guarded y = multiply(kernel, c, 0, c.M);
  check_product(y, c.element, c.M, c.N, c.y_stride(), 2e-6, c.name(), [&](int64_t m, int64_t n) {
    ExactSum exact = {c.has_bias ? c.bias.at(0, n) : 0, 0};
    exact.size = std::fabs(exact.sum);
    for (int64_t k = 0; k < c.K; ++k) {
      exact.sum += c.x.at(m, k) * c.w.at(n, k);
      exact.size += std::fabs(c.x.at(m, k) * c.w.at(n, k));
    }
    return exact;
  });
}

// Whatever the number of rows, each has the bits that it has alone in the same driver.
void test_bits(const LinearKernel& kernel, const LinearCase& c) {
  const Guarded together = multiply(kernel, c, 0, c.M);
  for (int64_t m = 0; m < c.M; m += kernel.streamed ? 1 : 29) {
    const Guarded alone = multiply(kernel, c, m, 1);
    const auto* row = together.as<std::byte>() + m * c.y_stride() * bytes_of(c.element);
    check(std::memcmp(row, alone.as<std::byte>(), c.N * bytes_of(c.element)) == 0,
          "row " + std::to_string(m) + " of " + c.name());
  }
}

// An infinity makes the results of its row infinite and changes no other row.
void test_infinity(const LinearKernel& kernel, const LinearCase& c) {
  if (c.N == 0 || c.K == 0) return;
  LinearCase infinite = c;
  const int64_t row = c.M / 2;
  infinite.x.values[row * c.K + c.K / 2] = INFINITY;
  const Guarded before = multiply(kernel, c, 0, c.M), after = multiply(kernel, infinite, 0, c.M);
  for (int64_t m = 0; m < c.M; ++m) {
    const auto offset = m * c.y_stride() * bytes_of(c.element);
    if (m != row)
      check(std::memcmp(before.as<std::byte>() + offset, after.as<std::byte>() + offset,
                        c.N * bytes_of(c.element)) == 0,
            "row " + std::to_string(m) + " beside infinity of " + c.name());
    for (int64_t n = 0; m == row && n < c.N; ++n) {
      const double w = c.w.at(n, c.K / 2), y = get(after, c.element, row * c.y_stride() + n);
      check(w == 0 ? std::isnan(y) : y == std::copysign(INFINITY, w), "infinity in " + c.name());
    }
  }
}

// Sizes that random cases miss: weights that tiles read in place, in several blocks of K, with rows of one to
// four vectors, of one tile and two, and with more rows, for which weights are packed.
void test_in_place(const Kernels& kernels) {
  int number = 0;
  for (int element = 0; element < kElements; ++element)
    for (int64_t M : {9, 16, 17, 33, 48, 65, 129})
      for (int64_t N : {16, 48})
        for (int64_t K : {544, 1056, 1120}) {
          const LinearCase c(number++, Sizes{static_cast<Element>(element), M, N, K});
          const LinearKernel& kernel = kernels.linear[element](M);
          test_case(kernel, c);
          test_bits(kernel, c);
          test_bits(kernels.invariant_linear[element](M), c);
        }
}

int test_isa(const std::string& isa, int cases) {
  const Kernels* kernels;
  try {
    kernels = &cpu::kernels_named(isa);
  } catch (const std::invalid_argument&) {
    return kSkipped;
  }
  for (int number = 0; number < cases; ++number) {
    const LinearCase c(number);
    const LinearKernel& kernel = kernels->linear[static_cast<int>(c.element)](c.M);
    test_case(kernel, c);
    test_bits(kernel, c);
    test_infinity(kernel, c);
    test_bits(kernels->invariant_linear[static_cast<int>(c.element)](c.M), c);
  }
  test_in_place(*kernels);
  return finish("linear_test " + isa);
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// linear_test ISA CASES
int main(int, char** argv) { return tiny_llm_ext::tests::test_isa(argv[1], std::stoi(argv[2])); }
