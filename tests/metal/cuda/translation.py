"""CUDA sources from Metal kernels, which include the shim, with an entry for each kernel.

One word is removed: `threadgroup` of a pointer, where the shim's `__shared__` would apply to the variable.
The readable kernel has no such pointer, so its source is unchanged.
"""

from __future__ import annotations

import re

from ..harness.signature import Argument, Signature, signatures

# Thread attributes.
BUILT_IN = {
    "threadgroup_position_in_grid": "metal_on_cuda::position()",
    "simdgroup_index_in_threadgroup": "metal_on_cuda::simd_group()",
    "thread_index_in_simdgroup": "metal_on_cuda::lane()",
    "thread_index_in_threadgroup": "metal_on_cuda::thread_index()",
}
ADDRESS_SPACE = re.compile(r"\b(device|constant)\b\s*")
THREADGROUP_POINTER = re.compile(r"\bthreadgroup\s+((?:const\s+)?\w+\s*\*)")


def translated(source: str, kernels: list[str], features: tuple[int, ...] = ()) -> str:
    """The CUDA source of these kernels, for these values of the function constants."""
    by_name = {signature.name: signature for signature in signatures(source)}
    chosen = [by_name[name] for name in kernels]
    indices = [index for _, index in chosen[0].constants]
    constants = dict(zip(indices, features, strict=bool(features)))
    defined = "".join(f"#define metal_on_cuda_{index} {constants.get(index, 0)}\n" for index in indices)
    entries = "".join(entry(signature, features) for signature in chosen)
    return (
        f"#include <cstring>\n{defined}#include <metal_stdlib>\n"
        f"{without_pointers_to_threadgroup(source)}\n#undef kernel\n#undef inline\n"
        f"struct Slots {{\n  void* at[16];\n}};\n{entries}"
    )


def without_pointers_to_threadgroup(source: str) -> str:
    return THREADGROUP_POINTER.sub(r"\1", source)


def pipeline(kernel: str, features: tuple[int, ...]) -> str:
    """The name that Launch::pipeline gives; the merge kernel has no features."""
    return "_".join([kernel, *(() if "merge" in kernel else map(str, features))])


def entry(signature: Signature, features: tuple[int, ...]) -> str:
    """A CUDA kernel that takes the buffers by slot and calls the Metal kernel."""
    values = ", ".join(map(value, signature.arguments))
    name = pipeline(signature.name, features)
    return (
        f"__global__ void __launch_bounds__(1024) start_{name}(Slots slots) {{\n"
        f"  {signature.name}({values});\n}}\n"
        f"const void* address_of_{name}() {{ return reinterpret_cast<const void*>(start_{name}); }}\n"
    )


def value(argument: Argument) -> str:
    if not argument.is_buffer:
        return BUILT_IN[argument.attribute]
    kind = ADDRESS_SPACE.sub("", argument.type)
    if kind.endswith("&"):
        return f"*static_cast<const {kind[:-1].strip()}*>(slots.at[{argument.slot}])"
    return f"static_cast<{kind}>(slots.at[{argument.slot}])"


def registry(pipelines: list[str]) -> str:
    """`kernel_named`, with which the driver finds a kernel."""
    declared = "".join(f"const void* address_of_{name}();\n" for name in pipelines)
    found = "".join(
        f'  if (!std::strcmp(name, "{name}")) return address_of_{name}();\n' for name in pipelines
    )
    return (
        f"#include <cstring>\n{declared}"
        f"const void* kernel_named(const char* name) {{\n{found}  return nullptr;\n}}\n"
    )
