"""How a command ends: its exit code, and one sentence on standard error where something went wrong."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from ..errors import NumericError, TinyLlmError
from ..loading import LoadError

FAILED = 1  # a model that cannot be loaded, a file that cannot be written, a wrong result
REFUSED = 2  # flags or a prompt that cannot be honoured; argparse uses this code too
INTERRUPTED = 130  # Ctrl-C, as shells count: 128 + SIGINT
BROKEN_PIPE = 141  # the reader of the output has gone, as in `| head -1`: 128 + SIGPIPE


class Refusal(Exception):
    """What was asked for cannot be done; the text names the flag, what was given and what is allowed."""


class Failure(Exception):
    """What was asked for has not worked; the text says why."""


def exit_code_of(program: str, run: Callable[[], int]) -> int:
    """The exit code of `run`; whatever ends it early is one sentence, never a traceback."""
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
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # a door has left it to us
            signal.signal(signal.SIGINT, signal.default_int_handler)
        set_encoding_errors()
        code = run()
        print(end="", flush=True)  # what cannot be written must fail here, and not when Python ends
        return code
    except Refusal as refusal:
        return print_error(program, str(refusal), REFUSED)
    except (Failure, LoadError, NumericError) as failure:
        return print_error(program, str(failure), FAILED)
    except TinyLlmError as refusal:  # what the library refuses, and no command has put in terms of its flags
        return print_error(program, str(refusal), REFUSED)
    except MemoryError:
        return print_error(program, "there is not enough memory for this", FAILED)
    except BrokenPipeError:
        drop_unwritten(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        drop_unwritten(sys.stdout)
        place = f"{error.filename}: " if error.filename else ""
        return print_error(program, f"{place}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        if sys.stderr.isatty():  # what was printed last has no line break
            print_stderr("")
        return print_error(program, "stopped", INTERRUPTED)


def open_missing_streams() -> None:
    """Put the null device in the place of standard streams that are closed, as by `2>&-`: a file that is
    opened later would get their numbers, and what is printed would land in it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays until the end


def drop_unwritten(stream: TextIO) -> None:
    """Drop what cannot be written to a stream: Python would try again at its end, and fail in its own way."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_error(program: str, sentence: str, code: int) -> int:
    print_stderr(f"{program}: {sentence}")
    return code


def print_stderr(text: str) -> None:
    """Print a line on standard error. One that cannot be written is no reason to fail."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def set_encoding_errors() -> None:
    """Print a substitute for what an encoding lacks, instead of failing half-way; of input, be strict."""
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)
