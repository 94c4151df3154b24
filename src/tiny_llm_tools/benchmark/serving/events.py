"""Server-sent events, and what an event of OpenAI's streams says."""

import json
from dataclasses import dataclass
from typing import Any

from .http import ProtocolError

MAX_EVENT = 2**20  # bytes
DONE = b"[DONE]"


class EventReader:
    """Splits a stream into events. Only their data is kept: OpenAI's streams use no other field."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_EVENT:
            raise ProtocolError(f"an event is longer than {MAX_EVENT} bytes")
        complete = []
        for line in lines:
            line = line.removesuffix(b"\r")
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            elif not line and self._data:
                complete.append(b"\n".join(self._data))
                self._data = []
        return complete


@dataclass(frozen=True, slots=True)
class Said:
    """What one event says. `usage` is (tokens of the prompt, tokens of the answer)."""

    has_choice: bool = False
    has_text: bool = False
    finished: bool = False
    usage: tuple[int, int] | None = None


def read_event(data: bytes) -> Said:
    """ProtocolError for an event that is not a JSON object of OpenAI's shape, or that is an error."""
    try:
        record = json.loads(data)
    except ValueError:
        raise ProtocolError(f"an event is not JSON: {_shown(data)}") from None
    try:
        if record.get("error"):
            raise ProtocolError(f"an error in the stream: {error_message(record)}")
        usage = record.get("usage")
        counts = (int(usage["prompt_tokens"]), int(usage["completion_tokens"])) if usage else None
        choices = record.get("choices") or []
        texts = [_text(choice) for choice in choices]
        finished = any(choice.get("finish_reason") is not None for choice in choices)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ProtocolError(f"an event does not have OpenAI's shape: {_shown(data)}") from None
    return Said(bool(choices), any(texts), finished, counts)


def _text(choice: dict[str, Any]) -> Any:
    """The new text of a completion, or that of a chat: content, reasoning, or a call."""
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text")
    fields = ("content", "reasoning_content", "reasoning", "tool_calls")
    return next((delta[name] for name in fields if delta.get(name)), None)


def error_message(record: Any) -> str:
    """The message of an error in any of the usual shapes."""
    error = record.get("error", record) if isinstance(record, dict) else record
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return _shown(str(error).encode())


def _shown(data: bytes) -> str:
    """At most a line of it, without control characters."""
    text = data.decode(errors="replace")
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= 200 else f"{line[:200]}..."
