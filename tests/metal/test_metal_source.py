"""A Metal source with its headers inlined."""

import re
import subprocess

import pytest

import metal_source

from ..support.processes.tools import cpp_compiler
from .attention.run import readable_source


def test_the_inlined_source_has_each_header_once():
    text = readable_source()
    assert '#include "' not in text
    assert set(re.findall("#include (.*)", text)) == {"<metal_stdlib>", "<cstdint>"}
    assert text.count("struct AttentionArguments {") == 1
    assert text.index("struct AttentionArguments {") < text.index("kernel void")


def test_a_character_beyond_ascii_is_refused():
    with pytest.raises(ValueError, match="ASCII"):
        metal_source.inlined("// \N{GREEK SMALL LETTER ALPHA}\n")


def test_the_host_constant_has_the_inlined_source(tmp_path):
    source = metal_source.SOURCES / "flash_attention.metal"
    metal_source.main(str(source), str(tmp_path / "source.h"))
    metal_source.main(str(source), str(tmp_path / "source.metal"))
    (tmp_path / "print.cpp").write_text(
        '#include "source.h"\n#include <cstdio>\n'
        "int main() { std::fputs(tiny_llm_ext::metal::kFlashAttentionSource, stdout); }\n"
    )
    program = tmp_path / "print"
    subprocess.run([cpp_compiler(), "-std=c++20", tmp_path / "print.cpp", "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert printed == readable_source() == (tmp_path / "source.metal").read_text()
