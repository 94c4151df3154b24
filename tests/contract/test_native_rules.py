"""Rules for the includes of the C++ sources, see HACKING.md."""

import re
from pathlib import Path

from ..support.processes.child import ROOT

SOURCES = ROOT / "src/extensions/src"
INCLUDE = re.compile(r'^#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
# Headers of C and of intrinsics: they define no C++ inline functions with external linkage.
PLAIN_HEADERS = {"arm_neon.h", "immintrin.h", "math.h", "stddef.h", "stdint.h", "string.h"}
INCLUDE_MLX_INTERNALS = {"cpu/runtime/dispatch.cpp", "metal/device.cpp"}


def included(source: Path) -> list[str]:
    return INCLUDE.findall(source.read_text())


def test_kernel_units_include_neither_the_stl_nor_mlx():
    """The linker might keep their copy of an inline function for the whole extension."""
    units = sorted((SOURCES / "cpu" / "isa").glob("isa_*.cpp"))
    assert len(units) >= 6
    reached, left = set(), list(units)
    foreign = set()
    while left:
        source = left.pop()
        reached.add(source)
        assert "std::" not in source.read_text(), source
        for name in included(source):
            if (SOURCES / name).exists():
                left += {SOURCES / name} - reached
            elif name not in PLAIN_HEADERS:
                foreign.add((source.name, name))
    assert foreign == set()
    assert len(reached) > 40


def test_one_file_of_a_back_end_includes_the_internals_of_mlx():
    internal = re.compile(r"mlx/(backend/|scheduler|event|fence)")
    knowing = {
        str(source.relative_to(SOURCES))
        for source in SOURCES.rglob("*")
        if source.suffix in {".cpp", ".h"} and any(map(internal.match, included(source)))
    }
    assert knowing == INCLUDE_MLX_INTERNALS
