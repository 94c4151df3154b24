"""`pdm bench [model|attention|kernels|layers|peers] [options]`: benchmarks by name, else the model's."""

import importlib
import signal
import sys

SUITES = ("model", "attention", "kernels", "layers", "peers")

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the program is there, Ctrl-C just ends it
    name, *arguments = sys.argv[1:] or ["model"]
    if name.startswith("-"):
        name, arguments = "model", sys.argv[1:]
    if name not in SUITES:
        print(f"no benchmark {name!r}; there is: {', '.join(SUITES)}", file=sys.stderr)
        sys.exit(2)
    if name == "model" and not {"-h", "--help"}.isdisjoint(arguments):
        print(f"Other benchmarks, each with --help: pdm bench {', '.join(SUITES[1:])}.\n")
    sys.exit(importlib.import_module(f"benches.{name}").main(arguments))
