"""Text from standard input: decoded strictly, and limited to the longest prompt."""

import sys
from typing import NoReturn

from ..loading.tokenizer.chat_template import MAX_TEXT_CHARS
from .exit_codes import Refusal


def read_all(flag: str) -> str:
    """Standard input without the line break at its end, which `echo` and editors add.

    A Refusal that names `flag` if it cannot be decoded.
    """
    try:
        text = sys.stdin.read(MAX_TEXT_CHARS + 1)
    except UnicodeDecodeError as error:
        refuse_bytes(f"{flag}: standard input", error)
    if len(text) > MAX_TEXT_CHARS:
        raise Refusal(f"{flag}: got more than {MAX_TEXT_CHARS} characters, expected at most that many")
    return text.removesuffix("\n")


def read_line() -> str | None:
    """The next line of standard input without its line break; None at the end."""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        refuse_bytes("standard input", error)
    return line.removesuffix("\n") if line else None


def refuse_bytes(source: str, error: UnicodeDecodeError) -> NoReturn:
    byte = error.object[error.start]
    raise Refusal(
        f"{source}: got the byte 0x{byte:02x}, expected text in {error.encoding.upper()}"
    ) from error
