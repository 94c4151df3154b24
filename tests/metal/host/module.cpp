// The functions that the tests call in addition to the extension, which is in the same library.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include <new>
#include <string_view>

#include "mlx/mlx.h"
#include "mlx/primitives.h"
#include "recorder.h"

namespace nb = nanobind;
namespace mx = mlx::core;

namespace {

// MLX's own operations run on the CPU, so the stream has the index of the CPU's.
mx::Stream gpu_stream() { return mx::Stream(mx::default_stream(mx::Device::cpu).index, mx::Device::gpu); }

// MLX's evaluation, one array after the other, with our primitives on the GPU.
void evaluate(mx::array array) {
  if (array.status() != mx::array::unscheduled) {
    array.eval();
    return;
  }
  for (const mx::array& input : array.inputs()) evaluate(input);
  std::vector<mx::array> outputs = array.outputs();
  const bool ours = std::string_view(array.primitive().name()).starts_with("tiny_llm_ext") &&
                    array.primitive().device() == mx::Device::gpu;
  if (ours) {
    array.primitive().eval_gpu(array.inputs(), outputs);
    recorder::commit();
  } else {
    array.primitive().eval_cpu(array.inputs(), outputs);
    mx::synchronize(mx::default_stream(mx::Device::cpu));
  }
  for (mx::array& output : outputs) output.set_status(mx::array::available);
}

nb::tuple as_python(const recorder::Bound& buffer) {
  return nb::make_tuple(buffer.slot, reinterpret_cast<uintptr_t>(buffer.address), buffer.bytes,
                        buffer.writable);
}

nb::tuple as_python(const recorder::Temporary& temporary) {
  return nb::make_tuple(reinterpret_cast<uintptr_t>(temporary.address), temporary.bytes);
}

// An array of zeros whose pages exist only once they are touched. MLX's allocator keeps the size of a buffer
// before it.
mx::array sparse(const std::vector<int>& shape, mx::Dtype dtype) {
  int64_t bytes = mx::size_of(dtype);
  for (int size : shape) bytes *= size;
  const size_t mapped = sizeof(size_t) + bytes;
  void* memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  *static_cast<size_t*>(memory) = bytes;
  auto unmap = [mapped](mx::allocator::Buffer buffer) { munmap(buffer.ptr(), mapped); };
  return mx::array(mx::allocator::Data(mx::allocator::Buffer(memory), unmap),
                   mx::Shape(shape.begin(), shape.end()), dtype);
}

}  // namespace

NB_MODULE(metal_device, m) {
  nb::module_::import_("mlx.core");
  m.def("gpu_stream", &gpu_stream);
  m.def("evaluate", [](const std::vector<mx::array>& arrays) {
    for (const mx::array& array : arrays) evaluate(array);
  });
  m.def("sparse", [](const std::vector<int>& shape, mx::Dtype dtype) { return sparse(shape, dtype); });
  m.def("set_architecture", [](std::string name) { recorder::architecture = std::move(name); });
  m.def("on_compile", [](std::function<int64_t(std::string, std::string, std::vector<int32_t>)> call) {
    recorder::compile = [call](const recorder::Pipeline& pipeline) {
      return call(pipeline.kernel, pipeline.source, pipeline.constants);
    };
  });
  m.def("on_run", [](nb::callable call) {
    recorder::run = [call](const recorder::Dispatch& dispatch) {
      nb::list buffers;
      for (const recorder::Bound& buffer : dispatch.buffers) buffers.append(as_python(buffer));
      nb::list temporaries;
      for (const recorder::Temporary& temporary : dispatch.temporaries) {
        temporaries.append(as_python(temporary));
      }
      nb::dict arguments;
      for (const auto& [slot, bytes] : dispatch.arguments) {
        arguments[nb::int_(slot)] = nb::bytes(bytes.data(), bytes.size());
      }
      call(dispatch.pipeline.kernel, dispatch.pipeline.source, dispatch.pipeline.constants, buffers,
           arguments, dispatch.threadgroups, dispatch.threads, temporaries);
    };
  });
}
