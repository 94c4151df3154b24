// Error texts, and the matching of shapes.
#include "core/checks.h"

#include <cmath>
#include <cstdio>
#include <sstream>

#include "core/gpu.h"

namespace tiny_llm_ext {

namespace mx = mlx::core;

void reject(const std::string& function, const std::string& argument, const std::string& got,
            const std::string& expected) {
  throw ArgumentError(function, argument, got, expected);
}

ReportError throws_argument_error(const char* function) {
  return [function](const char* argument, std::string got, std::string expected) {
    reject(function, argument, got, expected);
  };
}

ReportError throws_runtime_error(const char* function) {
  return [function](const char* argument, std::string got, std::string expected) {
    throw std::runtime_error(error_text(function, argument, got, expected));
  };
}

void check_floating(const char* function, const char* argument, const mx::array& x) {
  if (x.dtype() != mx::float32 && x.dtype() != mx::float16 && x.dtype() != mx::bfloat16) {
    reject(function, argument, to_text(x.dtype()), "float32, float16 or bfloat16");
  }
}

float check_scale(const char* function, double scale) {
  if (!std::isfinite(static_cast<float>(scale))) reject(function, "scale", to_text(scale), "a finite number");
  return static_cast<float>(scale);
}

void check_heads(const char* function, int num_heads, int num_kv_heads) {
  for (auto [argument, heads] :
       {std::pair{"num_heads", num_heads}, std::pair{"num_kv_heads", num_kv_heads}}) {
    if (heads < 1) reject(function, argument, std::to_string(heads), "at least 1");
  }
  if (num_heads % num_kv_heads != 0) {
    reject(function, "num_heads", std::to_string(num_heads),
           "a multiple of num_kv_heads = " + std::to_string(num_kv_heads));
  }
}

mx::Stream cpu_stream(const char* function, mx::StreamOrDevice stream) {
  auto device = std::get_if<mx::Device>(&stream);
  auto type = std::get_if<mx::Device::DeviceType>(&stream);
  // Before to_stream, which fails for a device that the machine lacks.
  bool on_gpu = (device && *device == mx::Device::gpu) || (type && *type == mx::Device::gpu);
  if (!on_gpu) {
    mx::Stream known = mx::to_stream(stream);
    if (known.device == mx::Device::cpu) return known;
  }
  refuse_gpu(function);
}

void refuse_gpu(const char* function) {
  throw std::runtime_error(std::string(function) +
                           ": this build has no kernel for the gpu; use a cpu stream");
}

mx::Stream kernel_stream(const char* function, mx::StreamOrDevice stream) {
  return gpu::exists() ? mx::to_stream(stream) : cpu_stream(function, stream);
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

// Without iostreams: with another copy of the C++ library loaded, formatting a number by its locale crashed.
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
