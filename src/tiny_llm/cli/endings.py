"""How a command ends: its exit code, and one sentence on standard error where something went wrong."""

import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

from ..loading import LoadError

FAILED = 1  # a model that cannot be loaded, a file that cannot be written, a wrong result
REFUSED = 2  # flags or a prompt that cannot be honoured; argparse uses this code too
INTERRUPTED = 130  # Ctrl-C, as shells count: 128 + SIGINT
UNREAD = 141  # the reader of the output has gone, as in `| head -1`: 128 + SIGPIPE


class Refusal(Exception):
    """What was asked for cannot be done; the text names the flag, what was given and what is allowed."""


class Failure(Exception):
    """What was asked for has not worked; the text says why."""


def guarded(program: str, run: Callable[[], int]) -> int:
    """The exit code of `run`; whatever ends it early is one sentence, never a traceback."""
    open_missing_streams()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # a door has left it to us
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            replace_strange_characters(stream)
        code = run()
        print(end="", flush=True)  # what cannot be written must fail here, and not when Python ends
        return code
    except Refusal as refusal:
        return complain(program, str(refusal), REFUSED)
    except (Failure, LoadError) as failure:
        return complain(program, str(failure), FAILED)
    except MemoryError:
        return complain(program, "there is not enough memory for this", FAILED)
    except BrokenPipeError:
        # Python writes what is left when it ends; that must not meet the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return complain(program, f"{place}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        if sys.stderr.isatty():  # what was printed last has no line break
            print(file=sys.stderr)
        return complain(program, "stopped", INTERRUPTED)


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


def complain(program: str, sentence: str, code: int) -> int:
    print(f"{program}: {sentence}", file=sys.stderr)
    return code


def replace_strange_characters(stream: TextIO | None) -> None:
    """Read and print a substitute for what an encoding lacks, instead of failing half-way."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
