// The quantized product: its entry point with the checks, its primitive and its transforms.
#include "core/checks.h"
#include "core/product_shape.h"
#include "cpu/interface/isa.h"
#include "cpu/interface/threads.h"
#include "quantized_linear.h"

namespace tiny_llm_ext {
namespace {

constexpr const char* kQuantizedMatmul = "quantized_matmul";
constexpr QuantizedNames kNames = {kQuantizedMatmul, "a", "b"};

[[noreturn]] void refuse_weights(const char* transform) {
  throw NotImplemented(std::string(kQuantizedMatmul) + ": " + transform +
                       " is supported along a only, not along b, scales and biases");
}

// Checks that a, the packed weights b, scales and biases fit each other.
void check_shapes(const QuantizedNames& names, const mx::array& scales, const mx::array& biases,
                  int group_size, int bits, const mx::array& a, const mx::array& b) {
  const char* const function = names.function;
  Dims dims(function);
  dims.match("scales", scales.shape(), {"N", "groups"});
  dims.match("biases", biases.shape(), {"N", "groups"});
  dims.match(names.weight, b.shape(), {"N", "words"});
  dims.match(names.rows, a.shape(), {"M...", "K"});
  int64_t K = int64_t{dims["groups"]} * group_size;
  std::string groups = std::to_string(dims["groups"]) + " groups of " + std::to_string(group_size);
  if (dims["words"] != K * bits / 32) {
    reject(function, names.weight, to_text(b.shape()),
           std::to_string(K * bits / 32) + " columns, " + groups + " numbers of " + std::to_string(bits) +
               " bits");
  }
  if (dims["K"] != K) {
    reject(function, names.rows, to_text(a.shape()), std::to_string(K) + " columns, " + groups);
  }
}

}  // namespace

mx::array quantized_product(const std::vector<mx::array>& inputs, QuantizedParams params, mx::Stream stream) {
  return mx::array(product_shape(inputs[0], inputs[1]), inputs[0].dtype(),
                   std::make_shared<QuantizedMatmul>(stream, params), inputs);
}

void check_quantized(const QuantizedNames& names, const mx::array& scales, const mx::array& biases,
                     int group_size, int bits, const mx::array& a, const mx::array& b) {
  const char* const function = names.function;
  if (group_size != 32 && group_size != 64 && group_size != 128) {
    reject(function, "group_size", std::to_string(group_size), "32, 64 or 128");
  }
  if (bits != 4 && bits != 8) reject(function, "bits", std::to_string(bits), "4 or 8");
  check_floating(function, "scales", scales);
  for (auto [argument, x] : {std::pair{"biases", &biases}, std::pair{names.rows, &a}}) {
    if (x->dtype() != scales.dtype()) {
      reject(function, argument, to_text(x->dtype()), to_text(scales.dtype()) + ", the dtype of scales");
    }
  }
  if (b.dtype() != mx::uint32) reject(function, names.weight, to_text(b.dtype()), "uint32");
  check_shapes(names, scales, biases, group_size, bits, a, b);
}

mx::array quantized_matmul(const mx::array& scales, const mx::array& biases, int group_size, int bits,
                           const mx::array& a, const mx::array& b, bool transpose_b,
                           mx::StreamOrDevice stream) {
  if (!transpose_b) reject(kQuantizedMatmul, "transpose_b", "False", "True");
  if (a.ndim() != 2) reject(kQuantizedMatmul, "a", to_text(a.shape()), "(M, K)");
  check_quantized(kNames, scales, biases, group_size, bits, a, b);
  return quantized_product({a, b, scales, biases},
                           {group_size, bits, &cpu::active_kernels(), cpu::active_threads()},
                           kernel_stream(kQuantizedMatmul, stream));
}

// y = a w^T is linear in a: the gradient is the cotangent times w, decoded to float32.
std::vector<mx::array> QuantizedMatmul::vjp(const std::vector<mx::array>& primals,
                                            const std::vector<mx::array>& cotangents,
                                            const std::vector<int>& argnums, const std::vector<mx::array>&) {
  if (argnums != std::vector<int>{0}) refuse_weights("the gradient");
  auto to_f32 = [&](const mx::array& x) { return mx::astype(x, mx::float32, stream()); };
  const mx::Shape shape = {primals[1].shape(0), primals[2].shape(1) * params_.group_size};
  const bool empty = primals[1].size() == 0;  // mx::dequantize refuses empty arrays
  const mx::array w =
      empty ? mx::zeros(shape, mx::float32, stream())
            : mx::dequantize(primals[1], to_f32(primals[2]), to_f32(primals[3]), params_.group_size,
                             params_.bits, "affine", std::nullopt, std::nullopt, stream());
  const mx::array dy = to_f32(cotangents[0]);
#ifdef __APPLE__
  const bool ours = false;  // MLX has Accelerate there
#else
  const bool ours = stream().device == mx::Device::cpu;
#endif
  const mx::array dx =
      ours ? linear(dy, mx::transpose(w, stream()), std::nullopt, stream()) : mx::matmul(dy, w, stream());
  return {mx::astype(dx, primals[0].dtype(), stream())};
}

std::vector<mx::array> QuantizedMatmul::jvp(const std::vector<mx::array>& primals,
                                            const std::vector<mx::array>& tangents,
                                            const std::vector<int>& argnums) {
  if (argnums != std::vector<int>{0}) refuse_weights("jvp");
  return {quantized_product({tangents[0], primals[1], primals[2], primals[3]}, params_, stream())};
}

// A mapped axis becomes more rows.
std::pair<std::vector<mx::array>, std::vector<int>> QuantizedMatmul::vmap(
    const std::vector<mx::array>& inputs, const std::vector<int>& axes) {
  if (axes[0] < 0 || axes[1] >= 0 || axes[2] >= 0 || axes[3] >= 0) refuse_weights("vmap");
  const mx::array a = mx::moveaxis(inputs[0], axes[0], 0, stream());
  return {{quantized_product({a, inputs[1], inputs[2], inputs[3]}, params_, stream())}, {0}};
}

bool QuantizedMatmul::is_equivalent(const mx::Primitive& other) const {
  return params_ == static_cast<const QuantizedMatmul&>(other).params_;
}

// A shapeless compiled graph calls this for every new set of shapes.
std::vector<mx::Shape> QuantizedMatmul::output_shapes(const std::vector<mx::array>& inputs) {
  check_quantized(kNames, inputs[2], inputs[3], params_.group_size, params_.bits, inputs[0], inputs[1]);
  return {product_shape(inputs[0], inputs[1])};
}

}  // namespace tiny_llm_ext
