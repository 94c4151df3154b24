// Names and docstrings of memory that stays: `WeightMemory`, and `zeros` for pages.
#include "bindings/weight_memory.h"

#include <nanobind/stl/vector.h>

#include "bindings/arguments.h"
#include "core/checks.h"
#include "cpu/runtime/allocate.h"
#include "cpu/runtime/weight_memory.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tiny_llm_ext {

void define_weight_memory(nb::module_& m) {
  using cpu::WeightMemory;
  using Release = nb::call_guard<nb::gil_scoped_release>;
  m.def(
      "zeros",
      [](const std::vector<int>& shape, mx::Dtype dtype) {
        for (int size : shape) {
          if (size < 0)
            reject("zeros", "shape", to_text({shape.begin(), shape.end()}), "sizes of at least 0");
        }
        return cpu::new_zeros({shape.begin(), shape.end()}, dtype);
      },
      "shape"_a, "dtype"_a, Release(),
      "Zeros for memory that stays, written by all threads, in huge pages where Linux provides them.");
  constexpr const char* kName = "WeightMemory";
  if (adopt_type<WeightMemory>(m, kName)) return;
  nb::class_<WeightMemory>(
      m, kName,
      "One allocation for arrays of these sizes in bytes, in huge pages where Linux provides them. Each "
      "array\nis aligned to a cache line.")
      .def(nb::init<const std::vector<int64_t>&>(), "sizes"_a)
      .def("copy", &WeightMemory::copy, "array"_a, Release(), "The next array, a copy of this one.")
      .def(
          "read",
          [](WeightMemory& memory, int file, int64_t begin, const std::vector<int>& shape, mx::Dtype dtype) {
            return memory.read(file, begin, {shape.begin(), shape.end()}, dtype);
          },
          "file"_a, "begin"_a, "shape"_a, "dtype"_a, Release(),
          "The next array, read from an open file (its descriptor) from byte `begin` on.");
}

}  // namespace tiny_llm_ext
