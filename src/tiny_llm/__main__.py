"""`python -m tiny_llm` is the command `tiny-llm`."""

import signal
import sys


def main() -> int:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # during imports, Ctrl-C ends it without a traceback
    from .cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
