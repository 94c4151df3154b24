"""The signature of a kernel, parsed from its source, and the launcher that calls it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache

from ...support.processes.tools import cpp_compiler

# Thread attributes: the expression for each component.
BUILT_IN = {
    "threadgroup_position_in_grid": ("position[0]", "position[1]", "position[2]"),
    "simdgroup_index_in_threadgroup": ("simd_group",),
    "thread_index_in_simdgroup": ("lane",),
    "thread_index_in_threadgroup": ("thread",),
}
COMMENT = re.compile(r"//.*?$|/\*.*?\*/", re.M | re.S)
CONSTANT = re.compile(r"\bconstant\s+int\s+(\w+)\s*\[\[\s*function_constant\(\s*(\w+)\s*\)\s*\]\]")
ARGUMENT = re.compile(r"\s*(.*?)(\w+)\s*\[\[\s*(\w+)\s*(?:\(\s*(\w+)\s*\))?\s*\]\]\s*", re.S)


@dataclass(frozen=True)
class Argument:
    type: str
    name: str
    attribute: str
    slot: str  # of a buffer: a number or a named constant

    @property
    def is_buffer(self) -> bool:
        return self.attribute == "buffer"

    @property
    def is_writable(self) -> bool:
        return self.is_buffer and "device" in self.type.split() and "const" not in self.type.split()


@dataclass(frozen=True)
class Signature:
    """A kernel's arguments, and the function constants of its source: name and index."""

    name: str
    arguments: tuple[Argument, ...]
    constants: tuple[tuple[str, str], ...]

    @property
    def buffers(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.is_buffer)


@cache
def signatures(source: str) -> list[Signature]:
    """The signatures of all functions declared `kernel void`."""
    source = expanded(COMMENT.sub("", source))
    constants = tuple(CONSTANT.findall(source))
    found = []
    for match in re.finditer(r"\bkernel\s+void\s+(\w+)\s*\(", source):
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        arguments = re.split(r",(?![^\[]*\]\])", source[match.end() : end - 1])
        parsed = tuple(argument(match[1], text) for text in arguments)
        found.append(Signature(match[1], parsed, constants))
    return found


def expanded(source: str) -> str:
    """The source with its own macros expanded; keywords of Metal stay."""
    own = re.sub(r"#include .*", "", source)
    command = (cpp_compiler(), "-E", "-P", "-x", "c++", "-D__METAL_VERSION__=310", "-")
    return subprocess.run(command, input=own, capture_output=True, text=True, check=True).stdout


def argument(kernel: str, text: str) -> Argument:
    match = ARGUMENT.fullmatch(text)
    if match is None or (match[3] != "buffer" and match[3] not in BUILT_IN):
        raise ValueError(f"{kernel}: the harness does not support the argument '{' '.join(text.split())}'")
    return Argument(" ".join(match[1].split()), match[2], match[3], match[4] or "")


def launcher(signature: Signature, slot_header: str | None, constants: dict[str, str]) -> str:
    """C++ source that calls the kernel with buffers by slot, and defines its function constants.

    The header defines slots and indices; `constants` has the symbol of each function constant.
    """
    # Both compilers pass pointers of every address space, and references, in the same way.
    types = ["void*" if argument.is_buffer else argument.type for argument in signature.arguments]
    values = [
        f"slots[{argument.slot}]" if argument.is_buffer else built_in(argument)
        for argument in signature.arguments
    ]
    slots = ", ".join(argument.slot for argument in signature.buffers)
    return "\n".join(
        [
            '#include "types.h"',
            f'#include "{slot_header}"\nusing namespace tiny_llm_ext;' if slot_header else "",
            f'extern "C" void {signature.name}({", ".join(types)});',
            f'extern "C" const int harness_slots[] = {{{slots}}};',
            "struct Constant { int index; int* value; };",
            *(f'int of_{name} asm("{constants[name]}");' for name, _ in signature.constants),
            'extern "C" const Constant harness_constants[] = {',
            *(f"  {{{index}, &of_{name}}}," for name, index in signature.constants),
            "  {-1, nullptr}};",
            "static void** slots;",
            'extern "C" void harness_set_slots(void** given) { slots = given; }',
            'extern "C" void harness_invoke(const uint* position, uint simd_group, uint lane, uint thread) {',
            "  (void)position, (void)simd_group, (void)lane, (void)thread;",
            f"  {signature.name}({', '.join(values)});",
            "}\n",
        ]
    )


def built_in(argument: Argument) -> str:
    scalar, size = re.fullmatch(r"(ushort|uint)([23]?)", argument.type).groups()
    components = BUILT_IN[argument.attribute][: int(size or 1)]
    return f"{argument.type}{{{', '.join(f'{scalar}({component})' for component in components)}}}"
