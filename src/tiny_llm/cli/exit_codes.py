"""Exit codes of commands; every error is one line on standard error."""

import signal
import sys
import warnings
from collections.abc import Callable

from ..errors import AnswerError, EngineFailed, OutOfMemoryError, StepFailed, TinyLlmError
from ..loading import LoadError
from ..runtime.memory import memory_errors
from .streams import drop_unwritten, open_missing_streams, print_stderr, set_encoding_errors

FAILED = 1  # a model that cannot be loaded, a file that cannot be written, a wrong result
REFUSED = 2  # options or a prompt that cannot be used; argparse uses this code, too
INTERRUPTED = 130  # Ctrl-C, as shells count: 128 + SIGINT
BROKEN_PIPE = 141  # the reader of the output is gone, as in `| head -1`: 128 + SIGPIPE

LESS_MEMORY = (
    "Less is needed with a smaller --max-tokens, a shorter prompt, a smaller --model or --dtype float16, in "
    "batch with a smaller --batch-size or --max-seq-len"
)


class Refusal(Exception):
    """Options or input that cannot be used; the text names the option, its value and what is allowed."""


class Failure(Exception):
    """A command that did not succeed; the text says why."""


def exit_code_of(program: str, run: Callable[[], int]) -> int:
    """The exit code of `run`; an exception becomes one line on standard error, not a traceback."""
    try:
        return run_and_report(program, run)
    finally:
        drop_unwritten(sys.stderr)


def run_and_report(program: str, run: Callable[[], int]) -> int:
    try:
        was_open = sys.stdout is not None
        open_missing_streams()
        if not was_open:
            raise Failure("standard output: is closed, so nothing can be printed")
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # main.py and its like set that during imports
            signal.signal(signal.SIGINT, signal.default_int_handler)
        set_encoding_errors()
        with memory_errors(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print_stderr(f"{program}: {message}")
            code = run()
        print(end="", flush=True)  # so that a failing write fails here, not when Python exits
        return code
    except Refusal as refusal:
        return print_error(program, str(refusal), REFUSED)
    except (Failure, LoadError, AnswerError, EngineFailed) as failure:
        return print_error(program, str(failure), FAILED)
    except OutOfMemoryError as error:
        return print_error(program, f"{error.problem}. {LESS_MEMORY}", FAILED)
    except StepFailed as failure:
        if isinstance(failure.__cause__, NotImplementedError):
            return print_error(program, f"not implemented: {failure.__cause__}", FAILED)
        return print_error(program, str(failure), FAILED)
    except TinyLlmError as refusal:  # an error of the library that no command has translated to its options
        return print_error(program, str(refusal), REFUSED)
    except NotImplementedError as missing:  # no kernel for this, or a task that a learner has not written yet
        return print_error(program, f"not implemented: {missing}", FAILED)
    except MemoryError:
        return print_error(program, "out of memory", FAILED)
    except BrokenPipeError:
        drop_unwritten(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        drop_unwritten(sys.stdout)
        place = f"{error.filename}: " if error.filename else ""
        return print_error(program, f"{place}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        if sys.stderr.isatty():  # the cursor is not at the start of a line
            print_stderr("")
        return print_error(program, "stopped", INTERRUPTED)


def print_error(program: str, sentence: str, code: int) -> int:
    print_stderr(f"{program}: {sentence}")
    return code
