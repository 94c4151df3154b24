"""Names the test during which a learner's kernel crashed, and says what to look at."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

OPTIONS = ["-p", "no:faulthandler", "-p", "tools.learner.running"]  # its stack does not enter kernels
OF_A_KERNEL = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
ADVICE = """
Only native code does that: a kernel of {folder} read or wrote outside of its arrays, or divided by 0.
Look at the bounds of its loops first: the last tile, which is not full, and rows that see no key.
std::fprintf(stderr, ...) shows what a kernel computes."""


def run_reporting(folder: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run pytest and say which test crashed; the exit status as a shell has it."""
    with tempfile.NamedTemporaryFile() as running:
        with subprocess.Popen([*command, *OPTIONS, "--running", running.name], env=environment) as process:
            # This process ends after pytest, which a terminal's Ctrl-C reaches, too, but no other signal.
            signal.signal(signal.SIGINT, lambda number, frame: None)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda number, frame: process.send_signal(number))
            status = process.wait()
        test = Path(running.name).read_text()
    if status >= 0:
        return status
    ended = f"{name_of(-status)} ended the tests {f'in {test}' if test else 'between two tests'}."
    print(f"\n\n{ended}{ADVICE.format(folder=folder) if -status in OF_A_KERNEL else ''}", file=sys.stderr)
    return 128 - status


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
