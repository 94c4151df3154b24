"""`pdm run batch-main`: sixteen questions at once."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the program is there, Ctrl-C just ends it
    from tiny_llm.cli import run_command

    sys.exit(run_command("batch", "pdm run batch-main"))
