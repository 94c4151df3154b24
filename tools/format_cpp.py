"""Format the sources of the extension with clang-format; with --check, only say what would change."""

import subprocess
import sys
from pathlib import Path

EXTENSIONS = Path(__file__).resolve().parents[1] / "src" / "extensions"
BUILT = EXTENSIONS / "tiny_llm_ext/metal"
SUFFIXES = {".cpp", ".h", ".metal", ".cu", ".cuh"}


def main() -> int:
    sources = sorted(
        str(path) for path in EXTENSIONS.rglob("*") if path.suffix in SUFFIXES and path.parent != BUILT
    )
    if not sources:
        return 0
    mode = ["--dry-run", "-Werror"] if "--check" in sys.argv[1:] else ["-i"]
    return subprocess.run(["clang-format", *mode, *sources], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
