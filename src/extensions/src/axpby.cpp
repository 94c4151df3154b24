// alpha x + beta y from MLX operations, so that it has every device and every transform.
#include "core/checks.h"
#include "tiny_llm_ext.h"

namespace tiny_llm_ext {

mx::array axpby(const mx::array& x, const mx::array& y, double alpha, double beta,
                mx::StreamOrDevice stream) {
  check_floating("axpby", "x", x);
  check_floating("axpby", "y", y);
  try {
    mx::broadcast_shapes(x.shape(), y.shape());
  } catch (const std::invalid_argument&) {
    reject("axpby", "y", to_text(y.shape()), "a shape that broadcasts with " + to_text(x.shape()) + " of x");
  }
  auto scaled = [&](const mx::array& array, double factor) {
    return mx::multiply(mx::astype(array, mx::float32, stream), mx::array(static_cast<float>(factor)),
                        stream);
  };
  mx::array sum = mx::add(scaled(x, alpha), scaled(y, beta), stream);
  return mx::astype(sum, mx::result_type(x, y), stream);
}

}  // namespace tiny_llm_ext
