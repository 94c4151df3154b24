"""What an answer is made of: content, reasoning and tool calls; all in one pass over its text."""

import secrets
from dataclasses import dataclass, field

import msgspec

THINK, END_OF_THINK = "<think>", "</think>"
CALL, END_OF_CALL = "<tool_call>", "</tool_call>"
MAX_CALL_CHARS = 2**18


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function; `arguments` is a JSON object as text."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")


Piece = Content | Reasoning | Call


class AnswerReader:
    """Splits the text of one answer, which comes in parts, in Qwen's format.

    thinking: the text may begin with <think>; `inside` it if the prompt ended with that tag.
    tools: <tool_call>{"name": ..., "arguments": {...}}</tool_call> is a call.
    """

    def __init__(self, thinking: bool = False, inside: bool = False, tools: bool = False):
        self._tools = tools
        self._state = "reasoning" if inside else "start" if thinking else "content"
        self._held: list[str] = []  # parts of the text that are not in a piece yet
        self._tail = ""  # of a call: where its end may begin
        self._after_thinking = False  # white space before the content is dropped

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain after this part of the text."""
        if self._state == "content" and not (self._tools or self._held or self._after_thinking):
            return [Content(text)] if text else []  # the common case
        self._held.append(text)
        if self._state == "call":
            end = self._tail + text
            self._tail = end[1 - len(END_OF_CALL) :]
            if END_OF_CALL not in end:
                return []  # nothing is joined before the end, so that a long call takes linear time
        return self._read(final=False)

    def finish(self) -> list[Piece]:
        """The rest; a tool call without its end is content."""
        return self._read(final=True)

    def _read(self, final: bool) -> list[Piece]:
        text, before = "".join(self._held), None
        pieces: list[Piece] = []
        while text and before != (self._state, text):
            before = (self._state, text)
            text = self._step(text, final, pieces)
        if final and self._state == "call":
            pieces.append(Content(CALL + text))
        elif final and text:
            pieces.append(Reasoning(text) if self._state == "reasoning" else Content(text))
        self._held = [] if final or not text else [text]
        self._tail = text[1 - len(END_OF_CALL) :]
        return pieces

    def _step(self, text: str, final: bool, pieces: list[Piece]) -> str:
        """Move what is certain from `text` to `pieces`; return the rest."""
        match self._state:
            case "start":
                stripped = text.lstrip()
                if stripped.startswith(THINK):
                    self._state = "reasoning"
                    return stripped[len(THINK) :].removeprefix("\n")
                if not final and THINK.startswith(stripped):
                    return text
                self._state = "content"
                return text
            case "reasoning":
                thought, found, rest = text.partition(END_OF_THINK)
                if not found and not final:
                    thought, rest = split_before_tag(text, "\n" + END_OF_THINK, END_OF_THINK)
                elif found:
                    self._state, self._after_thinking = "content", True
                    thought = thought.removesuffix("\n")
                if thought:
                    pieces.append(Reasoning(thought))
                return rest
            case "content":
                if self._after_thinking:
                    text = text.lstrip()
                    self._after_thinking = not text
                said, found, rest = text.partition(CALL) if self._tools else (text, "", "")
                if found:
                    self._state = "call"
                elif self._tools and not final:
                    said, rest = split_before_tag(text, "\n" + CALL, CALL)
                if said.strip() or not found:
                    said = said.removesuffix("\n") if found else said
                    if said:
                        pieces.append(Content(said))
                return rest
            case _:
                written, found, rest = text.partition(END_OF_CALL)
                if not found:
                    return text
                self._state, self._after_thinking = "content", True
                pieces.append(read_call(written) or Content(CALL + written + END_OF_CALL))
                return rest


def split_before_tag(text: str, *tags: str) -> tuple[str, str]:
    """`text` up to a beginning of a tag at its end, and that beginning."""
    for tag in tags:
        for length in range(min(len(tag) - 1, len(text)), 0, -1):
            if text.endswith(tag[:length]):
                return text[:-length], text[-length:]
    return text, ""


def read_call(written: str) -> Call | None:
    """The call that is written as JSON; None if it is not one."""
    if len(written) > MAX_CALL_CHARS:
        return None
    try:
        call = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return Call(call["name"], msgspec.json.encode(arguments).decode())
