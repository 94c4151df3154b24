// The row kernels of one instruction set against their definitions in double, on memory with guarded ends.
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention_case.h"
#include "check.h"
#include "cpu/interface/isa.h"
#include "guarded.h"
#include "typed_memory.h"

namespace tiny_llm_ext::tests {
namespace {

using cpu::RowKernels;
using Row = std::vector<double>;

// One case: an element type, a length, and the side of the rows on which memory is inaccessible.
struct RowCase {
  Element element;
  int64_t count;
  Guard guard;
  std::mt19937 generator;

  explicit RowCase(int number)
      : element(static_cast<Element>(number % kElements)),
        count(number / 6 % 70),
        guard(number / 3 % 2 ? Guard::after : Guard::before),
        generator(number) {}

  Row draw(int64_t size, double spread = 1) {
    std::normal_distribution<double> normal(0, spread);
    Row row;
    for (int64_t i = 0; i < size; ++i) row.push_back(rounded(element, normal(generator)));
    return row;
  }

  Guarded write(const Row& row) const {
    Guarded memory(row.size() * bytes_of(element), guard);
    for (size_t i = 0; i < row.size(); ++i) put(memory, element, i, row[i]);
    return memory;
  }

  Guarded memory(int64_t size) const { return Guarded(size * bytes_of(element), guard); }

  // Checks that each number is `expected`, rounded once, within the error of the float32 arithmetic before:
  // up to `lost`, where large numbers cancel.
  void expect(const Guarded& got, const Row& expected, const std::string& what, double lost = 0x1p-24) const {
    const double storage = element == Element::f32 ? 0x1p-24 : element == Element::f16 ? 0x1p-11 : 0x1p-8;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double x = get(got, element, i);
      const double allowed = (storage + 2e-6) * std::fabs(expected[i]) + lost;
      if (!(std::fabs(x - expected[i]) <= allowed)) {
        check(false, what + " of " + std::to_string(count) + ", element type " +
                         std::to_string(static_cast<int>(element)) + ": number " + std::to_string(i) +
                         " is " + std::to_string(x) + ", expected " + std::to_string(expected[i]));
        return;
      }
    }
    check(true, what);
  }
};

void test_elementwise(const RowKernels& rows, RowCase c) {
  const Row a = c.draw(c.count, 3), b = c.draw(c.count);
  Row product, sum;
  for (int64_t i = 0; i < c.count; ++i) {
    product.push_back(a[i] / (1 + std::exp(-a[i])) * b[i]);
    sum.push_back(a[i] + b[i]);
  }
  const Guarded first = c.write(a), second = c.write(b), out = c.memory(c.count);
  rows.silu_multiply(first.as<void>(), second.as<void>(), out.as<void>(), c.count);
  c.expect(out, product, "silu_multiply");
  rows.silu_multiply(first.as<void>(), second.as<void>(), second.as<void>(), c.count);
  c.expect(second, product, "silu_multiply in place");
  const Guarded other = c.write(b);
  rows.add(first.as<void>(), other.as<void>(), first.as<void>(), c.count);
  c.expect(first, sum, "add in place");
}

void test_rms_norm(const RowKernels& rows, RowCase c) {
  const Row x = c.draw(c.count), weight = c.draw(c.count);
  const Guarded memory = c.write(x), weights = c.write(weight);
  const Guarded y = c.memory(c.count);
  double squares = 0;
  for (int64_t i = 0; i < c.count; ++i) squares += x[i] * x[i];
  Row expected;
  const double scale = 1 / std::sqrt(squares / c.count + 1e-5);
  for (int64_t i = 0; i < c.count; ++i) expected.push_back(x[i] * scale * weight[i]);
  rows.rms_norm({.x = memory.as<void>(),
                 .y = y.as<void>(),
                 .weight = weights.as<void>(),
                 .weight_element = c.element,
                 .eps = 1e-5f,
                 .width = c.count});
  c.expect(y, expected, "rms_norm");
}

void test_rope(const RowKernels& rows, RowCase c) {
  const int64_t heads = 1 + c.count % 3, half = c.count / 2, dims = 2 * half, stride = dims + c.count % 5;
  const Row x = c.draw((heads - 1) * stride + dims);
  RowCase table = c;
  table.element = Element::f32;
  Row cos, sin;
  for (double angle : table.draw(half)) {
    cos.push_back(rounded(Element::f32, std::cos(angle)));
    sin.push_back(rounded(Element::f32, std::sin(angle)));
  }
  const Guarded memory = c.write(x), cosines = table.write(cos), sines = table.write(sin);
  for (bool traditional : {false, true}) {
    for (bool inverse : {false, true}) {
      const Guarded y = c.memory(heads * dims);
      rows.rope({.x = memory.as<void>(),
                 .x_head_stride = stride,
                 .y = y.as<void>(),
                 .y_head_stride = dims,
                 .cos = cosines.as<float>(),
                 .sin = sines.as<float>(),
                 .heads = heads,
                 .half = half,
                 .traditional = traditional,
                 .inverse = inverse});
      Row expected(heads * dims);
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const int64_t first = traditional ? 2 * i : i, second = traditional ? 2 * i + 1 : i + half;
          const double real = x[h * stride + first], imaginary = x[h * stride + second];
          const double turn = inverse ? -sin[i] : sin[i];
          expected[h * dims + first] = real * cos[i] - imaginary * turn;
          expected[h * dims + second] = imaginary * cos[i] + real * turn;
        }
      }
      c.expect(y, expected, "rope", 1e-6);
    }
  }
}

void test_unpack(const RowKernels& rows, RowCase c) {
  const int bits = c.count % 2 ? 4 : 8, group = 32 << c.count % 3;
  const int64_t groups = c.count % 4, words = groups * group * bits / 32;
  const Row scales = c.draw(groups), biases = c.draw(groups);
  const Guarded scale = c.write(scales), bias = c.write(biases), packed(words * 4, c.guard);
  const Guarded out = c.memory(groups * group);
  Row expected;
  for (int64_t w = 0; w < words; ++w) {
    const auto word = static_cast<uint32_t>(c.generator());
    packed.as<uint32_t>()[w] = word;
    for (int bit = 0; bit < 32; bit += bits) {
      const int64_t g = static_cast<int64_t>(expected.size()) / group;
      expected.push_back((word >> bit & ((1u << bits) - 1)) * scales[g] + biases[g]);
    }
  }
  rows.unpack({.words = packed.as<uint32_t>(),
               .scales = scale.as<void>(),
               .biases = bias.as<void>(),
               .out = out.as<void>(),
               .num_groups = groups,
               .group_size = group,
               .bits = bits});
  c.expect(out, expected, "unpack", 1e-4);
}

void test_select(const RowKernels& rows, RowCase c) {
  const int64_t count = 1 + c.count * 17;
  Row x = c.draw(count);
  for (double& number : x) number = rounded(c.element, std::nearbyint(2 * number) / 2);  // many are equal
  const Guarded memory = c.write(x);
  Guarded other = c.write(x);
  int64_t best = 0;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] > x[best]) best = i;
    sum += std::exp(x[i]);
  }
  check(rows.argmax(memory.as<void>(), count) == best, "argmax of " + std::to_string(count));
  const double total = rows.logsumexp(memory.as<void>(), count);
  check(std::fabs(total - std::log(sum)) <= 1e-5, "logsumexp of " + std::to_string(count));

  const Guarded weights(count * 4, c.guard);
  const float reference = rows.max(memory.as<void>(), count);
  check(reference == x[best], "max of " + std::to_string(count));
  const double returned = rows.exp_minus(memory.as<void>(), count, reference, weights.as<float>());
  check(std::fabs(returned - sum / std::exp(x[best])) <= 1e-5 * returned,
        "exp_minus of " + std::to_string(count));
  check(std::fabs(weights.as<float>()[count - 1] - std::exp(x[count - 1] - x[best])) <= 1e-6,
        "the last power");
  put(other, c.element, count / 2, NAN);
  check(rows.argmax(other.as<void>(), count) == count / 2, "argmax of a NaN");

  const float threshold = 0.5f;
  std::vector<uint32_t> expected, found;
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] > threshold) expected.push_back(static_cast<uint32_t>(i));
  }
  const int64_t capacity = 1 + c.count % 20;
  const Guarded sort_keys(capacity * 8, c.guard, 8);
  cpu::FindAboveTask task = {memory.as<void>(), 0, count, threshold, sort_keys.as<uint64_t>(), 0, capacity};
  while (task.next < count) {
    task.found = 0;
    rows.find_above(task);
    for (int64_t i = 0; i < task.found; ++i)
      found.push_back(~static_cast<uint32_t>(sort_keys.as<uint64_t>()[i]));
    if (!check(task.found == capacity || task.next == count, "find_above stops early")) break;
  }
  check(found == expected, "find_above of " + std::to_string(count));
}

int test_isa(const std::string& isa, int cases) {
  const cpu::Kernels* kernels;
  try {
    kernels = &cpu::kernels_named(isa);
  } catch (const std::invalid_argument&) {
    return kSkipped;
  }
  for (int number = 0; number < cases; ++number) {
    const RowCase c(number);
    for (auto test : {test_elementwise, test_rms_norm, test_rope, test_unpack, test_select})
      test(kernels->rows[static_cast<int>(c.element)], c);
  }
  return finish("rows_test " + isa);
}

}  // namespace
}  // namespace tiny_llm_ext::tests

// rows_test ISA CASES
int main(int, char** argv) { return tiny_llm_ext::tests::test_isa(argv[1], std::stoi(argv[2])); }
