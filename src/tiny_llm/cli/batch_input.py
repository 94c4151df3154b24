"""The questions of a batch: those built in, or the lines of a file, all checked before any is used."""

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..loading.tokenizer.chat_template import LONGEST_TEXT
from .built_in_prompts import PROMPTS
from .exit_codes import Refusal

FLAG = "--input"
FIELDS = ("prompt", "messages", "id", "max_tokens")
ROLES = ("system", "user", "assistant")
LARGEST = 2**28  # bytes of a file
NAMED = 3  # bad lines that a sentence names; of the others it tells the number


class InvalidLine(Exception):
    """What is wrong with a line."""


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One request: a prompt, or the messages of a whole conversation, and what its line says besides."""

    line: int
    prompt: str | None = None
    messages: tuple[dict[str, str], ...] | None = None
    id: str | int | None = None
    max_tokens: int | None = None

    def fields(self) -> dict[str, Any]:
        """What an answer repeats of its question."""
        given = {"id": self.id, "prompt": self.prompt, "messages": self.messages}
        return {"line": self.line} | {name: value for name, value in given.items() if value is not None}


BUILT_IN = tuple(InputRequest(number, prompt) for number, prompt in enumerate(PROMPTS, start=1))


def read_requests(name: str, *, raw: bool = False) -> tuple[InputRequest, ...]:
    """The lines of a file, or of standard input for "-", which are not blank.

    Each is a prompt, or, in a file called .jsonl or whose first line begins with "{", an object of JSON.
    The space around a prompt is left out unless it is `raw`.
    """
    lines = read_lines(name)
    filled = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not filled:
        raise Refusal(f"{FLAG}: {name}: got no questions, expected one on each line")
    is_json = name.endswith(".jsonl") or (not name.endswith(".txt") and filled[0][1].lstrip()[:1] == b"{")
    questions, wrong = [], []
    for number, line in filled:
        try:
            if is_json:
                questions.append(read_object(number, line))
            else:
                text = decode_line(line)
                questions.append(InputRequest(number, text if raw else text.strip()))
        except InvalidLine as error:
            wrong.append(f"line {number}: {error}")
    refuse_lines(name, wrong)
    return tuple(questions)


def read_lines(name: str) -> list[bytes]:
    """The lines of a file as bytes: what is no text is the fault of one line."""
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise Refusal(f"{FLAG}: {name} cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise Refusal(f"{FLAG}: {name}: got more than {LARGEST} bytes, expected at most these")
    return content.removeprefix(b"\xef\xbb\xbf").split(b"\n")  # the mark that some editors put before UTF-8


def refuse_lines(name: str, wrong: list[str]) -> None:
    """Refuse a file for its bad lines, if there are any."""
    if wrong:
        more = f" (and {len(wrong) - NAMED} more lines)" if len(wrong) > NAMED else ""
        raise Refusal(f"{FLAG}: {name}: {'; '.join(wrong[:NAMED])}{more}")


def decode_line(line: bytes) -> str:
    try:
        text = line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise InvalidLine(f"got the byte 0x{line[error.start]:02x}, expected text in UTF-8") from error
    return check_length(text)


def read_object(number: int, line: bytes) -> InputRequest:
    """The question of a line of JSON; what would not be honoured is refused."""
    try:
        given = json.loads(decode_line(line).strip())
    except (ValueError, RecursionError) as error:
        raise InvalidLine("got no JSON, expected an object") from error
    if not isinstance(given, dict):
        raise InvalidLine(f"got {json_type(given)}, expected an object")
    for name in given:
        if name not in FIELDS:
            raise InvalidLine(f"got the field {json.dumps(name)}, expected {', '.join(FIELDS)}")
    if ("prompt" in given) == ("messages" in given):
        raise InvalidLine("expected either prompt or messages")
    identity, limit = given.get("id"), given.get("max_tokens")
    if not isinstance(identity, str | int | None) or isinstance(identity, bool):
        raise InvalidLine(f"id: got {json_type(identity)}, expected a text or a whole number")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InvalidLine(f"max_tokens: got {json.dumps(limit)}, expected a whole number of at least 1")
    if "prompt" in given:
        return InputRequest(number, check_text("prompt", given["prompt"]), None, identity, limit)
    return InputRequest(number, None, tuple(read_messages(given["messages"])), identity, limit)


def read_messages(given: Any) -> Iterable[dict[str, str]]:
    if not isinstance(given, list) or not given:
        raise InvalidLine(f"messages: got {json_type(given)}, expected a list of at least one")
    for index, message in enumerate(given):
        place = f"messages[{index}]"
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise InvalidLine(f"{place}: expected an object with role and content, and nothing else")
        if message["role"] not in ROLES:
            raise InvalidLine(
                f"{place}: role: got {json.dumps(message['role'])}, expected {', '.join(ROLES)}"
            )
        yield {"role": message["role"], "content": check_text(f"{place}: content", message["content"])}


def check_text(place: str, given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidLine(f"{place}: got {json_type(given)}, expected a text")
    if not given.strip():
        raise InvalidLine(f"{place}: got an empty text, expected at least one word")
    if any("\ud800" <= character <= "\udfff" for character in given):
        raise InvalidLine(f"{place}: got half a character, \\ud800 to \\udfff, expected whole ones")
    return check_length(given)


def check_length(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise InvalidLine(f"got {len(text)} characters, expected at most {LONGEST_TEXT}")
    return text


def json_type(value: Any) -> str:
    """What a value of JSON is called."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
