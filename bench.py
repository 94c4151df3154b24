"""`pdm bench [NAME] [options]`: run the benchmark of that name, one of SUITES; `model` by default."""

import importlib
import signal
import sys

from benches.names import SUITES
from tools.learner.program import restart_in_solution

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # during imports, Ctrl-C ends it without a traceback
    restart_in_solution([__file__], sys.argv[1:])
    unnamed = sys.argv[1:2] in ([], ["serve"]) or sys.argv[1].startswith("-")  # `tiny-llm bench` has `serve`
    name, arguments = ("model", sys.argv[1:]) if unnamed else (sys.argv[1], sys.argv[2:])
    if name not in SUITES:
        print(f"pdm bench: unknown benchmark {name!r}, expected {', '.join(SUITES)}", file=sys.stderr)
        sys.exit(2)
    if name == "model" and not {"-h", "--help"}.isdisjoint(arguments):
        print(f"Other benchmarks, each with --help: pdm bench {', '.join(SUITES[1:])}.\n")
    sys.exit(importlib.import_module(f"benches.{name}").main(arguments))
