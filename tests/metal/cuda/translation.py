"""The text of Metal kernels as a CUDA source: unchanged, behind the shim, with a way to start each kernel."""

from __future__ import annotations

import re

from ..harness.signature import Argument, Signature, signatures

# What a thread is told about itself.
BUILT_IN = {
    "threadgroup_position_in_grid": "metal_on_cuda::position()",
    "simdgroup_index_in_threadgroup": "metal_on_cuda::simd_group()",
    "thread_index_in_simdgroup": "metal_on_cuda::lane()",
    "thread_index_in_threadgroup": "metal_on_cuda::thread_index()",
}
ADDRESS_SPACE = re.compile(r"\b(device|constant)\b\s*")


def translated(source: str, kernels: list[str]) -> str:
    """CUDA for these kernels of one Metal text, and `kernel_named`, by which the driver finds them."""
    by_name = {signature.name: signature for signature in signatures(source)}
    chosen = [by_name[name] for name in kernels]
    found = "".join(
        f'  if (!std::strcmp(name, "{name}")) return reinterpret_cast<const void*>(start_{name});\n'
        for name in kernels
    )
    return (
        "#include <cstring>\n#include <metal_stdlib>\n"
        f"{source}\n#undef kernel\n#undef inline\nstruct Slots {{\n  void* at[8];\n}};\n"
        f"{''.join(map(entry, chosen))}"
        f"const void* kernel_named(const char* name) {{\n{found}  return nullptr;\n}}\n"
    )


def entry(signature: Signature) -> str:
    """A kernel of CUDA that takes the buffers by slot and calls the kernel of Metal."""
    values = ", ".join(map(value, signature.arguments))
    return (
        f"__global__ void __launch_bounds__(1024) start_{signature.name}(Slots slots) {{\n"
        f"  {signature.name}({values});\n}}\n"
    )


def value(argument: Argument) -> str:
    if not argument.is_buffer:
        return BUILT_IN[argument.attribute]
    kind = ADDRESS_SPACE.sub("", argument.type)
    if kind.endswith("&"):
        return f"*static_cast<const {kind[:-1].strip()}*>(slots.at[{argument.slot}])"
    return f"static_cast<{kind}>(slots.at[{argument.slot}])"
