// MLX does not export its copy functions, so the primitives of its operations are evaluated instead.
#include "metal/copy.h"

#include "mlx/ops.h"
#include "mlx/primitives.h"

namespace tiny_llm_ext::metal {
namespace {

mx::array evaluated(mx::array array) {
  std::vector<mx::array> outputs = {array};
  array.primitive().eval_gpu(array.inputs(), outputs);
  return array;
}

}  // namespace

mx::array dense_copy(const mx::array& array, const mx::Shape& shape, mx::Stream stream) {
  mx::array broadcast = array.shape() == shape ? array : evaluated(mx::broadcast_to(array, shape, stream));
  return evaluated(mx::contiguous(broadcast, false, stream));
}

}  // namespace tiny_llm_ext::metal
