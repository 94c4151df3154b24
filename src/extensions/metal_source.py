"""Makes one text of a Metal source and its own headers, since a GPU's compiler is given a text, not a folder.

    python src/extensions/metal_source.py SOURCE.metal OUTPUT

OUTPUT is the text itself, or, with the suffix .h, a C++ header that holds it.
"""

import re
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
INCLUDE = re.compile(r'#include "([^"]+)"\n?')


def inlined(source: str) -> str:
    """The source with each header that it names in quotes in its place, the first time that it is named."""
    seen: set[str] = set()

    def header(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return INCLUDE.sub(header, (SOURCES / name).read_text().replace("#pragma once\n", ""))

    text = INCLUDE.sub(header, source)
    if not text.isascii():
        raise ValueError("a Metal source must be ASCII: MLX compiles it as such")
    return text


def cpp_header(name: str, text: str) -> str:
    """A C++ constant that holds the text."""
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
