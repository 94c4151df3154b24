// The quantized product of one instruction set against its definition in double; memory ends at guard pages.
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>
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
using cpu::QuantizedTask;

struct Sizes {
  int bits, group;
  int64_t M, N, groups;
};

// The problem with that number. Its sizes are random unless given.
struct QuantizedCase : Sizes {
  Element element;
  int64_t streamed_outputs;  // of a GEMV or skinny task
  int exponent;              // of the magnitude of x
  Guard guard;
  Matrix x, scales, biases, q;

  explicit QuantizedCase(int number, std::optional<Sizes> given = {}) {
    std::mt19937 generator(number);
    std::normal_distribution<double> normal;
    const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(generator); };
    element = static_cast<Element>(number % kElements);
    bits = number / 3 % 2 ? 8 : 4;
    group = 32 << number / 6 % 3;
    // Kernels are not called without rows.
    M = 1 + below(number % 7 == 2 ? 2 : number % 4 ? 33 : number % 12 ? 64 : 256);
    N = 1 + below(M <= 2 ? 400 : 100);  // GEMV runs on several runs of outputs
    groups = below(1 + 1200 / group);
    if (given) static_cast<Sizes&>(*this) = *given;
    guard = below(2) ? Guard::after : Guard::before;
    const auto draw = [&](int64_t rows, int64_t columns, auto next) {
      Matrix matrix{rows, columns, columns + (below(2) ? 0 : below(7)), {}};
      for (int64_t i = 0; i < rows * columns; ++i) matrix.values.push_back(next());
      return matrix;
    };
    const auto number_of_type = [&] { return rounded(element, normal(generator)); };
    // Also large and small rows, whose intermediate results must neither overflow nor underflow.
    exponent = number % 5 || element == Element::f16 ? 0 : number % 10 ? 100 : -100;
    x = draw(M, groups * group, [&] { return std::ldexp(number_of_type(), exponent); });
    scales = draw(N, groups, number_of_type);
    biases = draw(N, groups, number_of_type);
    q = draw(N, groups * group, [&] { return static_cast<double>(below(1 << bits)); });
    streamed_outputs = below(3) ? 1 + below(N) : N;
    if (groups > 0 && below(2)) hide(1 + below(4), below(2), below);
  }

  // Gives rows of x outliers, neighbouring or anywhere, whose weights are all zero: their magnitude does not
  // enter the error bounds.
  template <class Below>
  void hide(int64_t count, bool adjacent, Below below) {
    const int64_t first = below(q.columns - count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = adjacent ? first + i : below(q.columns);
      for (int64_t n = 0; n < N; ++n) {
        q.values[n * q.columns + k] = 0;
        biases.values[n * groups + k / group] = 0;
      }
      for (int64_t m = below(2); m < M; m += 1 + below(3)) {
        const double outlier = std::ldexp(below(2) ? 1 : -1, exponent + 8 + static_cast<int>(below(8)));
        x.values[m * x.columns + k] = element == Element::f16 || below(2) ? outlier : std::ldexp(outlier, 12);
      }
    }
  }

  std::string name() const {
    return std::to_string(M) + " x " + std::to_string(N) + " x " + std::to_string(groups) + " groups of " +
           std::to_string(group) + ", " + std::to_string(bits) + " bits, element type " +
           std::to_string(static_cast<int>(element));
  }
};

Guarded pack(const QuantizedCase& c, int64_t row_words) {
  Guarded memory(c.N * row_words * 4, c.guard);
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t k = 0; k < c.q.columns; ++k) {
      const int64_t bit = k * c.bits;
      uint32_t& word = memory.as<uint32_t>()[n * row_words + bit / 32];
      const uint32_t field = ((1u << c.bits) - 1) << bit % 32;
      word = (word & ~field) | static_cast<uint32_t>(c.q.at(n, k)) << bit % 32;
    }
  }
  return memory;
}

// Packs in as many pieces as there are, the last first, as threads in no order would.
void pack_in_pieces(const cpu::QuantizedKernels& quantized, const QuantizedTask& task, void* packed) {
  for (int64_t m = task.rows - 1; m >= 0; --m) quantized.prepare_row(task, packed, m);
  for (int64_t part = quantized.pack_parts(task) - 1; part >= 0; --part)
    quantized.pack(task, packed, part, part + 1);
}

void pack_at_once(const cpu::QuantizedKernels& quantized, const QuantizedTask& task, void* packed) {
  for (int64_t m = 0; m < task.rows; ++m) quantized.prepare_row(task, packed, m);
  quantized.pack(task, packed, 0, quantized.pack_parts(task));
}

// Packs the rows of a task and runs it, some outputs at a time.
void run_rows(const cpu::QuantizedKernels& quantized, const QuantizedTask& task, const QuantizedCase& c,
              bool pieces) {
  const size_t packed_bytes = quantized.packed_bytes(task);  // 0: x is used where it lies
  Guarded packed(packed_bytes, Guard::after, 64);
  if (packed_bytes > 0) (pieces ? pack_in_pieces : pack_at_once)(quantized, task, packed.as<void>());
  Guarded scratch(quantized.scratch_bytes(task), Guard::after, 64);
  // The last outputs first: a write beyond the outputs of a run overwrites results of an earlier one.
  const int64_t step = task.streamed ? c.streamed_outputs : quantized.task_outputs;
  for (int64_t n = (c.N - 1) / step * step; n >= 0; n -= step) {
    QuantizedTask part = task;
    part.w += n * task.w_row_stride;
    part.scales = static_cast<const std::byte*>(task.scales) + n * c.scales.stride * bytes_of(c.element);
    part.biases = static_cast<const std::byte*>(task.biases) + n * c.biases.stride * bytes_of(c.element);
    part.y = static_cast<std::byte*>(task.y) + n * bytes_of(c.element);
    part.outputs = std::min(step, c.N - n);
    quantized.run(part, packed.as<void>(), scratch.as<void>());
  }
}

int64_t y_stride(const QuantizedCase& c) { return c.N + 3; }

// Some rows of the product, y_stride apart.
Guarded multiply(const cpu::QuantizedKernels& quantized, const QuantizedCase& c, int64_t first, int64_t count,
                 bool pieces = true) {
  const int64_t row_words = c.q.columns * c.bits / 32, x_row = c.x.stride * bytes_of(c.element);
  const Guarded x = write(c.x, c.element, c.guard), w = pack(c, row_words);
  const Guarded scales = write(c.scales, c.element, c.guard), biases = write(c.biases, c.element, c.guard);
  Guarded y((std::max<int64_t>(count - 1, 0) * y_stride(c) + c.N) * bytes_of(c.element), c.guard);
  const QuantizedTask task = {.x = x.as<std::byte>() + first * x_row,
                              .x_row_stride = c.x.stride,
                              .w = w.as<uint32_t>(),
                              .w_row_stride = row_words,
                              .scales = scales.as<void>(),
                              .scales_row_stride = c.scales.stride,
                              .biases = biases.as<void>(),
                              .biases_row_stride = c.biases.stride,
                              .y = y.as<void>(),
                              .y_row_stride = y_stride(c),
                              .rows = count,
                              .outputs = c.N,
                              .num_groups = c.groups,
                              .group_size = c.group,
                              .bits = c.bits,
                              .streamed = count <= quantized.max_streamed_rows};
  const int64_t task_rows = task.streamed ? count : quantized.task_rows;
  for (int64_t m = 0; m < count; m += task_rows) {
    QuantizedTask rows = task;
    rows.x = static_cast<const std::byte*>(task.x) + m * x_row;
    rows.y = y.as<std::byte>() + m * y_stride(c) * bytes_of(c.element);
    rows.rows = std::min(task_rows, count - m);
    run_rows(quantized, rows, c, pieces);
  }
  return y;
}

void test_case(const Kernels& kernels, const QuantizedCase& c) {
  const cpu::QuantizedKernels& quantized = kernels.quantized[static_cast<int>(c.element)];
  const Guarded y = multiply(quantized, c, 0, c.M);

  // Blocked bfloat16 products round weights to bfloat16.
  const bool rounded_weights =
      kernels.attention[static_cast<int>(c.element)].bf16_products && c.M > quantized.max_streamed_rows;
  const double error = rounded_weights ? 0x1p-9 : 2e-6;
  check_product(
      y, c.element, c.M, c.N, y_stride(c), error, c.name(),
      [&](int64_t m, int64_t n) {
        ExactSum exact = {0, 0};
        for (int64_t k = 0; k < c.q.columns; ++k) {
          const double scaled = c.q.at(n, k) * c.scales.at(n, k / c.group),
                       bias = c.biases.at(n, k / c.group);
          exact.sum += c.x.at(m, k) * (scaled + bias);
          exact.size += std::fabs(c.x.at(m, k)) * (std::fabs(scaled) + std::fabs(bias));
        }
        return exact;
      },
      std::ldexp(0x1p-25, c.exponent));
}

// Skinny products with every size of tile.
void test_skinny_rows(const Kernels& kernels) {
  int number = 0;
  for (int bits : {4, 8})
    for (int group : {32, 64, 128})
      for (int64_t M : {3, 5, 6, 7, 8, 9, 16, 17, 32, 33, 39})
        for (int64_t groups : {0, 3, 17})
          for (int element = 0; element < kElements; ++element)
            test_case(kernels, QuantizedCase(number++, Sizes{bits, group, M, 17, groups}));
}

// The pieces of a panel give the bits of a panel that is packed at once.
void test_pieces(const Kernels& kernels) {
  int number = 0;
  for (int bits : {4, 8})
    for (int group : {32, 64, 128})
      for (int64_t M : {2, 4, 7, 12, 31, 45})
        for (int element = 0; element < kElements; ++element) {
          const QuantizedCase c(number++, Sizes{bits, group, M, 17, 6});
          for (const auto* all : {&kernels.quantized, &kernels.invariant_quantized}) {
            const cpu::QuantizedKernels& quantized = (*all)[static_cast<int>(c.element)];
            const Guarded pieces = multiply(quantized, c, 0, c.M, true),
                          once = multiply(quantized, c, 0, c.M, false);
            for (int64_t m = 0; m < c.M; ++m) {
              const int64_t at = m * y_stride(c) * bytes_of(c.element);
              check(std::memcmp(pieces.as<std::byte>() + at, once.as<std::byte>() + at,
                                c.N * bytes_of(c.element)) == 0,
                    "row " + std::to_string(m) + " in pieces of " + c.name());
            }
          }
        }
}

// A row of a batch-invariant product has the same bits among any number of rows.
void test_invariant_rows(const Kernels& kernels) {
  int number = 0;
  for (int bits : {4, 8})
    for (int group : {32, 64, 128})
      for (int element = 0; element < kElements; ++element) {
        const QuantizedCase c(number++, Sizes{bits, group, 45, 33, 5});
        const cpu::QuantizedKernels& quantized = kernels.invariant_quantized[static_cast<int>(c.element)];
        const int64_t row_bytes = y_stride(c) * bytes_of(c.element);
        const Guarded all = multiply(quantized, c, 0, c.M);
        for (int64_t count : {1, 2, 4, 5, 8, 9, 16, 17, 32, 33}) {
          const int64_t first = c.M - count;
          const Guarded some = multiply(quantized, c, first, count);
          for (int64_t m = 0; m < count; ++m)
            check(std::memcmp(all.as<std::byte>() + (first + m) * row_bytes,
                              some.as<std::byte>() + m * row_bytes, c.N * bytes_of(c.element)) == 0,
                  "row " + std::to_string(m) + " of the last " + std::to_string(count) + " of " + c.name());
        }
      }
}

// Rows so large that the sum of a group before its scale is infinite, unless rows are in units of their
// largest element, as on AMX.
void test_large_rows(const Kernels& kernels) {
  if (std::string(kernels.name) != "amx") return;
  for (int bits : {4, 8})
    for (int64_t M : {1, 3, 7, 11, 40}) {
      QuantizedCase large(0, Sizes{bits, 64, M, 17, 3});  // in float32
      for (double& x : large.x.values)
        x = std::ldexp(std::clamp(std::ldexp(x, -large.exponent), -4., 4.), 122);
      large.exponent = 122;
      for (Matrix* factors : {&large.scales, &large.biases})
        for (double& factor : factors->values) factor = std::ldexp(factor, -20);
      test_case(kernels, large);
    }
}

// The largest weights, and rows of a number whose int8 digits are the largest.
void test_largest_sums(const Kernels& kernels) {
  for (int number = 0; number < kElements; ++number)
    for (int64_t M : {3, 7}) {
      QuantizedCase ends(number, Sizes{8, 128, M, 17, 3});
      std::fill(ends.q.values.begin(), ends.q.values.end(), 255);
      std::fill(ends.x.values.begin(), ends.x.values.end(), rounded(ends.element, -0x7f7f7cp-30));
      test_case(kernels, ends);
    }
}

// Rows of small numbers, and of zeros, in a thread with FTZ and DAZ on, as some libraries leave it.
void test_with_flushed_denormals([[maybe_unused]] const Kernels& kernels) {
#if defined(__SSE__)
  constexpr unsigned kFtzAndDaz = 0x8040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFtzAndDaz);
  constexpr int64_t kRows[] = {1, 2, 3, 7, 11, 33};
  for (int number = 0; number < 36; ++number) {
    QuantizedCase small(number, Sizes{number < 18 ? 4 : 8, 64, kRows[number / 3 % 6], 17, 3});
    const int smaller = small.element == Element::f16 ? 0 : -110 - small.exponent;
    for (double& x : small.x.values) x = std::ldexp(x, smaller);
    small.exponent += smaller;
    test_case(kernels, small);
    std::fill(small.x.values.begin(), small.x.values.end(), 0);
    test_case(kernels, small);
    check((_mm_getcsr() & kFtzAndDaz) == kFtzAndDaz, "the mode of the thread is restored");
  }
  _mm_setcsr(before);
#endif
}

int test_isa(const std::string& isa, int cases) {
  const Kernels* kernels;
  try {
    kernels = &cpu::kernels_named(isa);
  } catch (const std::invalid_argument&) {
    return kSkipped;
  }
  for (int number = 0; number < cases; ++number) test_case(*kernels, QuantizedCase(number));
  test_skinny_rows(*kernels);
  test_pieces(*kernels);
  test_invariant_rows(*kernels);
  test_large_rows(*kernels);
  test_largest_sums(*kernels);
  test_with_flushed_denormals(*kernels);
  return finish("quantized_test " + isa);
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// quantized_test ISA CASES
int main(int, char** argv) { return tiny_llm_ext::tests::test_isa(argv[1], std::stoi(argv[2])); }
