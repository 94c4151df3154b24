"""Exit codes of commands, and their standard streams; every error is one line on standard error."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from ..errors import AnswerError, EngineFailed, OutOfMemoryError, RefusedArgument, StepFailed, TinyLlmError
from ..loading import LoadError
from ..runtime.memory import memory_errors

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


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@contextmanager
def naming_flags(*names: str, **places: str) -> Iterator[None]:
    """Turn an error about one of these arguments into a Refusal that names its flag or, in `places`, another.

    Errors about others pass: they name the argument of the library.
    """
    try:
        yield
    except RefusedArgument as error:
        name, bracket, rest = error.argument.partition("[")
        place = places.get(name, flag(name) if name in names else None)
        if place is None:
            raise
        raise Refusal(f"{place}{bracket}{rest}: {error.reason}") from error


@contextmanager
def optional_packages(extra: str, advice: str = "install it with") -> Iterator[None]:
    """A block of imports; a missing package is a Failure with the command that installs the extra."""
    try:
        yield
    except ModuleNotFoundError as missing:
        advice = f"{advice} pip install 'tiny-llm[{extra}]'"
        raise Failure(f"{missing.name}: not installed; {advice}") from missing


def exit_code_of(program: str, run: Callable[[], int]) -> int:
    """The exit code of `run`; an exception becomes one line on standard error, not a traceback."""
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
    except (Failure, LoadError, AnswerError, EngineFailed) as failure:
        return print_error(program, str(failure), FAILED)
    except OutOfMemoryError as error:
        return print_error(program, f"{error.problem}. {LESS_MEMORY}", FAILED)
    except StepFailed as failure:
        if isinstance(failure.__cause__, NotImplementedError):
            return print_error(program, f"not implemented: {failure.__cause__}", FAILED)
        return print_error(program, str(failure), FAILED)
    except (Refusal, TinyLlmError) as refusal:  # the second: of the library, which names its own argument
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
    finally:
        drop_unwritten(sys.stderr)


def print_error(program: str, sentence: str, code: int) -> int:
    print_stderr(f"{program}: {sentence}")
    return code


def print_stderr(text: str) -> None:
    """Print a line on standard error; failing to write it is not an error."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def open_missing_streams() -> None:
    """Open the null device for standard streams that are closed, as by `2>&-`; otherwise a file opened later
    would get their descriptor, and printed text would land in it."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - stays open until the process ends


def drop_unwritten(stream: TextIO) -> None:
    """Drop buffered output that cannot be written; Python would retry at exit and print its own error."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def set_encoding_errors() -> None:
    """Replace characters that the output's encoding lacks; fail on invalid bytes in the input."""
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)
