"""Check that no instruction set leaks out of its kernels: `tools/check_isa_leak.py [BUILD_FOLDER]`.

The linker keeps one copy of an inline function. If a kernel unit (isa_<name>.cpp) emits one that other code
uses too, the linker may keep the AVX-512 copy, and a machine without AVX-512 crashes outside of the kernels.
So in the objects of the build in place, or of the folder given:

1. a kernel unit defines only its getter and symbols of its own namespace;
2. elsewhere only functions that the loader chooses by processor (target_clones) use vector registers with
   the instructions that came with AVX;
3. the linked library, whose symbols are stripped, has no more such instructions than 1 and 2 account for.
"""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src" / "extensions"))
import build

UNIT = re.compile(r"isa_(\w+)\.cpp\.o")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
CHOSEN_BY_LOADER = re.compile(r"\.(avx|arch_)\w*$")
AVX_INSTRUCTION = re.compile(r"^ +[0-9a-f]+:\s+(\{\w+\} )?v\w+ .*%[xyz]mm")
PERSONALITY = "DW.ref.__gxx_personality_v0"  # a pointer for exceptions, the same in every object


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def foreign_symbols(unit: Path, isa: str) -> list[str]:
    """Global and weak symbols of a kernel unit that are neither its getter nor in its namespace."""
    table = output_of("nm", "--defined-only", "--extern-only", "--format=posix", unit)
    getter, namespace = f"{isa}_kernels", isa
    own = rf"_Z[A-Z]*12tiny_llm_ext3cpu({len(getter)}{getter}Ev$|{len(namespace)}{namespace})"
    names = [line.split()[0] for line in table.splitlines()]
    return [name for name in names if name != PERSONALITY and not re.match(own, name)]


def avx_instructions(binary: Path) -> dict[str, int]:
    """The number of AVX instructions of each function; a stripped library is one function."""
    counts: dict[str, int] = {}
    function = ""
    for line in output_of("objdump", "-d", "--no-show-raw-insn", binary).splitlines():
        if heading := FUNCTION.match(line):
            function = heading[1]
        elif AVX_INSTRUCTION.match(line):
            counts[function] = counts.get(function, 0) + 1
    return counts


def main() -> int:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else build.BUILD
    objects = sorted(folder.rglob("*.o"))
    units = {path: match[1] for path in objects if (match := UNIT.fullmatch(path.name))}
    if not units:
        print(f"no kernel unit below {folder}: build the extension first", file=sys.stderr)
        return 1

    leaks = [f"{path.name} defines {name}" for path in units for name in foreign_symbols(path, units[path])]
    accounted = 0
    for path in objects:
        for function, count in avx_instructions(path).items():
            if path in units or CHOSEN_BY_LOADER.search(function):
                accounted += count
            else:
                leaks.append(f"{path.name}: {function} has {count} AVX instructions")
    libraries = build.PACKAGE.glob("_ext.*.so") if folder == build.BUILD else ()
    for library in libraries:
        if (count := sum(avx_instructions(library).values())) > accounted:
            leaks.append(f"{library.name} has {count} AVX instructions, {accounted} are accounted for")

    print("\n".join([*leaks, f"{len(objects)} objects, {len(units)} kernel units, {len(leaks)} leaks"]))
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
