"""What is asked: text from standard input, and the questions of `batch`, checked before a model is loaded."""

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..loading.tokenizer.chat_template import MAX_TEXT_CHARS
from ..sampling.ranges import MAX_TOKENS
from .exit_codes import Refusal

FLAG = "--input"
FIELDS = ("prompt", "messages", "id", "max_tokens")
ROLES = ("system", "user", "assistant")
MAX_INPUT_BYTES = 2**28  # bytes
BATCH_FIELDS = {"custom_id", "url", "body"}  # of a line of OpenAI's batch API
LOOKED_AT = 100  # lines, to find one that shows what a file has
REPORTED = 3  # invalid lines named in an error, which counts the others
# The built-in questions have short and long answers, so that requests start and end all the time.
PROMPTS = (
    "What is FlashAttention?",
    "What is 17 + 25?",
    "Tell me a short story about a brave fox.",
    "What is the opposite of early?",
    "What is a KV cache?",
    "What is 9 * 8?",
    "Tell me a short story about a lost kite.",
    "Hello! How are you?",
    "Why does attention divide by the square root of the head size?",
    "What day comes after Friday?",
    "Tell me a short story about a small boat.",
    "What is 84 - 37?",
    "What is continuous batching?",
    "Who are you?",
    "Tell me a short story about an old clock.",
    "What is a token?",
)


class InvalidLine(Exception):
    """A line that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, or the messages of a whole conversation, with the other fields of its line."""

    line: int
    prompt: str | None = None
    messages: tuple[dict[str, str], ...] | None = None
    id: str | int | None = None
    max_tokens: int | None = None

    def fields(self) -> dict[str, Any]:
        """The fields that are repeated in the answer."""
        given = {"id": self.id, "prompt": self.prompt, "messages": self.messages}
        return {"line": self.line} | {name: value for name, value in given.items() if value is not None}


BUILT_IN = tuple(Question(number, prompt) for number, prompt in enumerate(PROMPTS, start=1))


def read_questions(name: str, *, raw: bool = False) -> tuple[Question, ...]:
    """The non-blank lines of a file, or of standard input for "-".

    Each is a prompt, or a JSON object if the file's name ends in .jsonl or its first line begins with "{" and
    its name does not end in .txt. Spaces around a prompt are removed unless it is `raw`.
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
                questions.append(Question(number, text if raw else text.strip()))
        except InvalidLine as error:
            wrong.append(f"line {number}: {error}")
    refuse_lines(name, wrong)
    return tuple(questions)


def is_batch_file(name: str) -> bool:
    """Whether a file has requests of OpenAI's batch API, by its first line that is a JSON object."""
    if not Path(name).is_file() or name.endswith(".txt"):
        return False
    with Path(name).open("rb") as file:
        for _ in range(LOOKED_AT):
            try:
                given = json.loads(file.readline(MAX_INPUT_BYTES).removeprefix(b"\xef\xbb\xbf"))
            except (ValueError, RecursionError):
                continue
            if isinstance(given, dict):
                return not BATCH_FIELDS.isdisjoint(given)
    return False


def read_lines(name: str) -> list[bytes]:
    """The lines of a file, not decoded yet, so that invalid UTF-8 is an error of its line only."""
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            content = file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise Refusal(f"{FLAG}: {name} cannot be read: {error.strerror}") from error
    if len(content) > MAX_INPUT_BYTES:
        raise Refusal(f"{FLAG}: {name}: got more than {MAX_INPUT_BYTES} bytes, expected at most that many")
    return content.removeprefix(b"\xef\xbb\xbf").split(b"\n")  # the byte order mark of some editors


def refuse_lines(name: str, wrong: list[str]) -> None:
    """Refuse a file with invalid lines."""
    if wrong:
        more = f" (and {len(wrong) - REPORTED} more lines)" if len(wrong) > REPORTED else ""
        raise Refusal(f"{FLAG}: {name}: {'; '.join(wrong[:REPORTED])}{more}")


def decode_line(line: bytes) -> str:
    try:
        text = line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise InvalidLine(f"got the byte 0x{line[error.start]:02x}, expected text in UTF-8") from error
    return check_length(text)


def read_object(number: int, line: bytes) -> Question:
    """The request in a line of JSON; unknown fields are refused."""
    try:
        given = json.loads(decode_line(line).strip())
    except (ValueError, RecursionError) as error:
        raise InvalidLine("got invalid JSON, expected an object") from error
    if not isinstance(given, dict):
        raise InvalidLine(f"got {json_type(given)}, expected an object")
    for name in given:
        if name not in FIELDS:
            raise InvalidLine(f"got the field {json.dumps(name)}, expected {', '.join(FIELDS)}")
    if ("prompt" in given) == ("messages" in given):
        raise InvalidLine("expected either prompt or messages")
    identity, limit = given.get("id"), given.get("max_tokens")
    if not isinstance(identity, str | int | None) or isinstance(identity, bool):
        raise InvalidLine(f"id: got {json_type(identity)}, expected a string or an integer")
    if isinstance(identity, str):
        check_whole("id", identity)
    if limit is not None and (type(limit) is not int or limit not in MAX_TOKENS):
        raise InvalidLine(f"max_tokens: got {json.dumps(limit)}, expected an integer {MAX_TOKENS}")
    if "prompt" in given:
        return Question(number, check_text("prompt", given["prompt"]), None, identity, limit)
    return Question(number, None, tuple(read_messages(given["messages"])), identity, limit)


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
        raise InvalidLine(f"{place}: got {json_type(given)}, expected a string")
    if not given.strip():
        raise InvalidLine(f"{place}: got an empty text, expected at least one word")
    check_whole(place, given)
    return check_length(given)


def check_whole(place: str, given: str) -> None:
    """Refuse what cannot be written in UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in given):
        raise InvalidLine(f"{place}: got half a character, \\ud800 to \\udfff, expected whole ones")


def check_length(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidLine(f"got {len(text)} characters, expected at most {MAX_TEXT_CHARS}")
    return text


def json_type(value: Any) -> str:
    """The JSON type of a value, for an error text."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


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
