"""The standard streams: closed ones are replaced, output that cannot be written is dropped."""

import os
import sys
from contextlib import suppress
from typing import TextIO


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
