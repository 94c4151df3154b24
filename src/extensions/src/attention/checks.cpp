// Error texts and named dimensions.
#include "attention/checks.h"

#include <cstdio>
#include <sstream>

#include "mlx/utils.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

std::string complaint(const std::string& function, const std::string& argument, const std::string& got,
                      const std::string& expected) {
  return function + ": " + argument + ": got " + got + ", expected " + expected;
}

void reject(const std::string& function, const std::string& argument, const std::string& got,
            const std::string& expected) {
  throw std::invalid_argument(complaint(function, argument, got, expected));
}

std::string to_text(const mx::Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string to_text(mx::Dtype dtype) {
  std::ostringstream out;
  out << dtype;
  return out.str();
}

// Not through a stream: where another copy of the C++ library is loaded, formatting a number by its locale
// crashed.
std::string to_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

const Dims::Bound* Dims::find(std::string_view name) const {
  for (const Bound& bound : bound_) {
    if (bound.name == name) return &bound;
  }
  return nullptr;
}

void Dims::match(const char* argument, const mx::Shape& shape,
                 std::initializer_list<std::string_view> names) {
  size_t leading = names.begin()->ends_with("...") ? 1 : 0;
  size_t fixed = names.size() - leading;
  if (leading ? shape.size() < fixed : shape.size() != fixed) {
    reject(function_, argument, to_text(shape), expected(names));
  }
  std::vector<Bound> found;
  auto axis = shape.begin();
  for (std::string_view name : names) {
    auto end = name.ends_with("...") ? shape.end() - fixed : axis + 1;
    found.push_back({name, mx::Shape(axis, end), argument});
    axis = end;
    const Bound* known = find(name);
    if (known && known->sizes != found.back().sizes)
      reject(function_, argument, to_text(shape), expected(names));
  }
  for (Bound& bound : found) {
    if (!find(bound.name)) bound_.push_back(std::move(bound));
  }
}

// "(B..., Hkv, S, E) with B... = (2,) and E = 64 of query"
std::string Dims::expected(std::initializer_list<std::string_view> names) const {
  std::string pattern, values;
  for (std::string_view name : names) {
    pattern += (pattern.empty() ? "" : ", ") + std::string(name);
    const Bound* known = find(name);
    if (!known) continue;
    values += (values.empty() ? " with " : ", ") + std::string(name) + " = " +
              (name.ends_with("...") ? to_text(known->sizes) : std::to_string(known->sizes[0])) + " of " +
              known->argument;
  }
  return "(" + pattern + (names.size() == 1 ? ",)" : ")") + values;
}

}  // namespace tiny_llm_ext
