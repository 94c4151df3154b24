// Argument checks: one form of error text, and shapes matched against named dimensions.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/errors.h"
#include "mlx/array.h"
#include "mlx/utils.h"

namespace tiny_llm_ext {

// Throws an ArgumentError.
[[noreturn]] void reject(const std::string& function, const std::string& argument, const std::string& got,
                         const std::string& expected);

// Throws for a wrong value of an argument.
using ReportError = std::function<void(const char* argument, std::string got, std::string expected)>;

// For checks at the call, as `reject`; and for checks at evaluation.
ReportError throws_argument_error(const char* function);
ReportError throws_runtime_error(const char* function);

// Throws unless x is float32, float16 or bfloat16.
void check_floating(const char* function, const char* argument, const mlx::core::array& x);

float check_scale(const char* function, double scale);

// Both at least 1, the first a multiple of the second.
void check_heads(const char* function, int num_heads, int num_kv_heads);

// The stream of an operation with a kernel for the CPU only, or also for the GPU if the build has a back end
// for it; throws std::runtime_error for any other device.
mlx::core::Stream cpu_stream(const char* function, mlx::core::StreamOrDevice stream);
mlx::core::Stream kernel_stream(const char* function, mlx::core::StreamOrDevice stream);

// For an evaluation on a GPU without a kernel, to which a graph was moved.
[[noreturn]] void refuse_gpu(const char* function);

std::string to_text(const mlx::core::Shape& shape);
std::string to_text(mlx::core::Dtype dtype);
std::string to_text(double number);

// Named sizes. The first array with a name binds it, later ones must agree; a name that ends in "..." stands
// for any number of leading axes. Names and arguments are string literals.
class Dims {
 public:
  explicit Dims(const char* function) : function_(function) {}

  void match(const char* argument, const mlx::core::Shape& shape,
             std::initializer_list<std::string_view> names);

  int operator[](std::string_view name) const { return find(name)->sizes[0]; }

 private:
  struct Bound {
    std::string_view name;
    mlx::core::Shape sizes;
    const char* argument;
  };

  const Bound* find(std::string_view name) const;
  std::string expected(std::initializer_list<std::string_view> names) const;

  const char* function_;
  std::vector<Bound> bound_;
};

}  // namespace tiny_llm_ext
