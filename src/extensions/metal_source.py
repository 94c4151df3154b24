"""Inlines the headers of a Metal source, because a GPU's compiler gets a string, not a folder.

    python src/extensions/metal_source.py SOURCE.metal OUTPUT

OUTPUT is the inlined source, or, with the suffix .h, a C++ header with it as a constant.
"""

import re
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
INCLUDE = re.compile(r'#include "([^"]+)"\n?')


def inlined(source: str) -> str:
    """The source with each quoted include replaced by the header, the first time only."""
    seen: set[str] = set()

    def header(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return INCLUDE.sub(header, (SOURCES / name).read_text().replace("#pragma once\n", ""))

    text = INCLUDE.sub(header, source)
    if not text.isascii():
        raise ValueError("a Metal source must be ASCII, because MLX compiles it as ASCII")
    return text


def cpp_header(name: str, text: str) -> str:
    """A C++ header with the text as a constant."""
    identifier = "k" + "".join(word.capitalize() for word in name.split("_")) + "Source"
    return (
        f"#pragma once\n\nnamespace tiny_llm_ext::metal {{\n\n"
        f'inline constexpr const char* {identifier} = R"metal({text})metal";\n\n'
        f"}}  // namespace tiny_llm_ext::metal\n"
    )


def main(source: str, output: str) -> None:
    text = inlined(Path(source).read_text())
    if output.endswith(".h"):
        text = cpp_header(Path(source).stem, text)
    Path(output).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
