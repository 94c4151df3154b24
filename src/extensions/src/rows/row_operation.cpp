// The base class of the row operations: derivatives through their graph, and mapped axes.
#include "core/checks.h"
#include "core/dtype.h"
#include "cpu/interface/isa.h"
#include "rows/row_operations.h"

namespace tiny_llm_ext {
namespace {

std::vector<mx::array> chosen(const std::vector<mx::array>& arrays, const std::vector<int>& indices) {
  std::vector<mx::array> some;
  for (int index : indices) some.push_back(arrays[index]);
  return some;
}

}  // namespace

RowOperation::RowOperation(const char* function, mx::Stream stream)
    : mx::Primitive(stream),
      function_(function),
      kernels_(cpu::active_kernels()),
      threads_(cpu::active_threads()) {}

void RowOperation::eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) { refuse_gpu(function_); }

const cpu::RowKernels& RowOperation::kernels_of(const mx::array& x) const {
  return kernels_.rows[static_cast<int>(element_of(x.dtype()))];
}

int RowOperation::threads_for(int64_t rows, mx::Dtype dtype) const {
  return threads_.of(rows <= kernels_.quantized[static_cast<int>(element_of(dtype))].max_streamed_rows);
}

std::vector<mx::array> RowOperation::graph(const std::vector<mx::array>&) {
  throw NotImplemented(std::string(function_) + ": derivatives are not supported");
}

std::vector<mx::array> RowOperation::vjp(const std::vector<mx::array>& primals,
                                         const std::vector<mx::array>& cotangents,
                                         const std::vector<int>& argnums, const std::vector<mx::array>&) {
  return mx::vjp(graph_along(primals, argnums), chosen(primals, argnums), cotangents).second;
}

std::vector<mx::array> RowOperation::jvp(const std::vector<mx::array>& primals,
                                         const std::vector<mx::array>& tangents,
                                         const std::vector<int>& argnums) {
  return mx::jvp(graph_along(primals, argnums), chosen(primals, argnums), tangents).second;
}

// The graph as a function of some of its inputs.
std::function<std::vector<mx::array>(const std::vector<mx::array>&)> RowOperation::graph_along(
    const std::vector<mx::array>& inputs, const std::vector<int>& argnums) {
  return [this, inputs, argnums](const std::vector<mx::array>& variables) {
    std::vector<mx::array> all = inputs;
    for (size_t i = 0; i < argnums.size(); i++) all[argnums[i]] = variables[i];
    return graph(all);
  };
}

mx::array RowOperation::mapped_axis_first(const mx::array& input, int axis, int size) {
  if (axis >= 0) return mx::moveaxis(input, axis, 0, stream());
  mx::Shape shape = input.shape();
  shape.insert(shape.begin(), size);
  return mx::broadcast_to(input, shape, stream());
}

}  // namespace tiny_llm_ext
