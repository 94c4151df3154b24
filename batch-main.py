"""`pdm run batch-main`: answer many questions at once."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # during imports, Ctrl-C ends it without a traceback
    from tools.learner.program import restart_in_solution

    restart_in_solution([__file__], sys.argv[1:])
    from tiny_llm.cli import run_command

    sys.exit(run_command("batch", "pdm run batch-main"))
