"""`pdm run main`: one question, one answer."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the program is there, Ctrl-C just ends it
    from tiny_llm.cli import run_command

    sys.exit(run_command("generate", "pdm run main"))
