"""Fingerprints of the inputs of checks of `.ci/run`, and `.ci/passed`, the record of those that passed.

`tools/recorded.py fingerprint NAME INPUT... -- COMMAND...` prints a hash of the name, the inputs, the command
and `.ci`, where the command may be a function. An input is a pathspec of git, which must match a file, or
`@cpu`: the instruction sets of this machine. Files count as they are in the work tree, committed or not,
without those that git ignores.
`tools/recorded.py record FINGERPRINT NAME INPUT... -- COMMAND...` writes it, if the inputs still have it.
"""

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

RECORD = Path(".ci/passed")
# How checks are run and recorded is an input of each, but not the record.
ALWAYS = [".ci", f":(exclude){RECORD.as_posix()}", "tools/recorded.py"]
CPU = "@cpu"


def files(pathspecs: list[str]) -> list[Path]:
    """The files that git knows or would add; ValueError for a pathspec that matches none."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]

    def matched(*wanted: str) -> set[str]:
        answer = subprocess.run([*listing, "--", *wanted], check=True, capture_output=True)
        return set(os.fsdecode(answer.stdout).split("\0")) - {""}

    for pathspec in pathspecs:
        if not pathspec.startswith(":") and not matched(pathspec):
            raise ValueError(f"{pathspec} matches no file")
    return sorted(map(Path, matched(*pathspecs)))


def instruction_sets() -> list[str]:
    sys.path.insert(0, "src/extensions")
    import tiny_llm_ext

    return tiny_llm_ext.cpu_isas()


def content(path: Path) -> bytes:
    """The bytes of a file and whether it can be executed, or where a link leads; a deleted file has none."""
    if path.is_symlink():
        return b"link " + os.fsencode(os.readlink(path))
    if not path.exists():
        return b"deleted"
    return (b"program " if os.access(path, os.X_OK) else b"file ") + path.read_bytes()


def fingerprint(name: str, inputs: list[str], command: list[str]) -> str:
    """A hash, also of the versions of Python and the system: a pass on another one is none here."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    facts = [name, *inputs, "--", *command, python, platform.system(), platform.machine()]
    if CPU in inputs:
        facts += instruction_sets()
    digest = hashlib.sha256("\0".join(facts).encode())
    for path in files([*ALWAYS, *(text for text in inputs if text != CPU)]):
        digest.update(hashlib.sha256(os.fsencode(path)).digest())
        digest.update(hashlib.sha256(content(path)).digest())
    return digest.hexdigest()


def record(name: str, value: str) -> None:
    """Two checks may end at the same time."""
    with RECORD.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        lines = dict(reversed(line.split(" ", 1)) for line in file.read().splitlines())
        lines[name] = value
        file.truncate(0)
        file.writelines(f"{lines[each]} {each}\n" for each in sorted(lines))


def main() -> None:
    action, *arguments = sys.argv[1:]
    before = arguments.pop(0) if action == "record" else None
    end = arguments.index("--")
    value = fingerprint(arguments[0], arguments[1:end], arguments[end + 1 :])
    if before is None:
        print(value)
    elif before == value:
        record(arguments[0], value)
    else:
        print(f"{arguments[0]}: its inputs changed while it ran, so it is not recorded", file=sys.stderr)


if __name__ == "__main__":
    main()
