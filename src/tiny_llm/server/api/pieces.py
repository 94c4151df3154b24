"""What an answer is made of: content, reasoning and tool calls, in one pass over its text; and its blocks."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ...engine import Event
from ...engine.request import EventReason

THINK, END_OF_THINK = "<think>", "</think>"
CALL, END_OF_CALL = "<tool_call>", "</tool_call>"
MAX_CALL_CHARS = 2**18
MAX_SPACE = 1000  # characters of space that wait for a tag


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
    one_call: the answer ends after its first call, whatever follows.
    reasoning_tokens: of the thoughts and their tags; the event in which these end counts as a whole.
    """

    def __init__(
        self, thinking: bool = False, inside: bool = False, tools: bool = False, one_call: bool = False
    ):
        self._tools = tools
        self._one_call = one_call
        self._ended = False  # by its first call
        self._state = "reasoning" if inside else "start" if thinking else "content"
        self._held: list[str] = []  # parts of the text that are not in a piece yet
        self._tail = ""  # of a call: where its end may begin
        self._skip_space = inside  # white space next to a tag is dropped
        self._undecided = 0  # tokens before it is known whether the text begins with <think>
        self.reasoning_tokens = 0

    def read(self, event: Event) -> tuple[list[Piece], EventReason | None]:
        """The pieces that are certain after this event, and why the answer has ended; None if it goes on."""
        before = self._state
        pieces = self.feed(event.text)
        if event.finish_reason is not None:
            inside = self._state == "call" and event.stop_string is not None
            pieces += self.finish(cut=inside or event.finish_reason == "length")
        if self._state == "start":
            self._undecided += len(event.token_ids)
        elif "reasoning" in (before, self._state) or any(isinstance(each, Reasoning) for each in pieces):
            self.reasoning_tokens += self._undecided + len(event.token_ids)
            self._undecided = 0
        return pieces, "stop" if self._ended else event.finish_reason

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain after this part of the text."""
        if self._state == "content" and not (self._tools or self._held or self._skip_space):
            return [Content(text)] if text else []  # the common case
        self._held.append(text)
        if self._state == "call":
            end = self._tail + text
            self._tail = end[1 - len(END_OF_CALL) :]
            if END_OF_CALL not in end:
                return []  # nothing is joined before the end, so that a long call takes linear time
        return self._read(final=False)

    def finish(self, cut: bool = False) -> list[Piece]:
        """The rest. A tool call without its end is content, unless the answer was `cut` there."""
        return self._read(final=True, cut=cut)

    def _read(self, final: bool, cut: bool = False) -> list[Piece]:
        text, before = "".join(self._held), None
        pieces: list[Piece] = []
        while text and before != (self._state, text) and not self._ended:
            before = (self._state, text)
            text = self._step(text, final and not cut, pieces)
        if self._ended or (cut and self._begun(text)):
            text = ""
        elif final and self._state == "call":
            pieces.append(Content(CALL + text))
        elif final and text:
            pieces.append(Reasoning(text) if self._state == "reasoning" else Content(text))
        self._held = [] if final or not text else [text]
        self._tail = text[1 - len(END_OF_CALL) :]
        return pieces

    def _begun(self, text: str) -> bool:
        """Whether this rest is that of a call, or the begin of a tag."""
        return self._state == "call" or (self._state != "reasoning" and bool(text.strip()))

    def _step(self, text: str, final: bool, pieces: list[Piece]) -> str:
        """Move what is certain from `text` to `pieces`; return the rest."""
        if self._skip_space:
            text = text.lstrip()
            self._skip_space = not text
        match self._state:
            case "start":
                stripped = text.lstrip()
                if stripped.startswith(THINK):
                    self._state, self._skip_space = "reasoning", True
                    return stripped[len(THINK) :]
                if not final and THINK.startswith(stripped) and len(text) <= MAX_SPACE:
                    return text
                self._state = "content"
                return text
            case "reasoning":
                thought, found, rest = split_at_tag(text, END_OF_THINK, final)
                if found:
                    self._state, self._skip_space = "content", True
                if thought:
                    pieces.append(Reasoning(thought))
                return rest
            case "content":
                said, found, rest = split_at_tag(text, CALL, final) if self._tools else (text, False, "")
                if found:
                    self._state = "call"
                if said:
                    pieces.append(Content(said))
                return rest
            case _:
                written, end, rest = text.partition(END_OF_CALL)
                if not end:
                    return text
                self._state, self._skip_space = "content", True
                call = read_call(written)
                self._ended = self._one_call and call is not None
                pieces.append(call or Content(CALL + written + END_OF_CALL))
                return rest


def split_at_tag(text: str, tag: str, final: bool) -> tuple[str, bool, str]:
    """The text before the tag, whether the tag was found, and the text after it.

    Space before a tag is dropped. Without the tag, what may be its beginning is returned as the third part,
    with the space before; unless the text is final.
    """
    before, tag_found, after = text.partition(tag)
    if tag_found:
        return before.rstrip(), True, after
    if final:
        return text, False, ""
    begun = next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
    certain = text[: len(text) - begun].rstrip()
    if len(text) - len(certain) > MAX_SPACE:
        certain = text[: len(text) - begun]
    return certain, False, text[len(certain) :]


class WrittenCall(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


def read_call(written: str) -> Call | None:
    """The call that is written as JSON; None if it is not one."""
    if len(written) > MAX_CALL_CHARS:
        return None
    try:
        call = msgspec.json.decode(written, type=WrittenCall)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Call(call.name, msgspec.json.encode(call.arguments).decode())


@dataclass(slots=True)
class Block:
    """A part of an answer. The text of a block of the kind "call" is the arguments of its `call`.

    id, logprobs: for interfaces where a block has them.
    """

    index: int
    kind: Literal["reasoning", "text", "call"]
    call: Call | None = None
    parts: list[str] = field(default_factory=list)
    id: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Step:
    """What has happened to a block: it was opened, `text` was added to it, or it was closed."""

    change: Literal["opened", "added", "closed"]
    block: Block
    text: str = ""


class Blocks:
    """The blocks of one answer, from its pieces. `open` is the one that may get more text."""

    def __init__(self) -> None:
        self.all: list[Block] = []
        self.open: Block | None = None

    def add(self, piece: Piece) -> Iterator[Step]:
        """What a piece changes. A piece of another kind, and any call, closes the open block."""
        call = piece if isinstance(piece, Call) else None
        kind: Literal["reasoning", "text"] = "reasoning" if isinstance(piece, Reasoning) else "text"
        if self.open is None or call is not None or self.open.kind != kind:
            yield from self.close()
            self.open = Block(len(self.all), kind if call is None else "call", call)
            self.all.append(self.open)
            yield Step("opened", self.open)
        text = piece.arguments if isinstance(piece, Call) else piece.text
        self.open.parts.append(text)
        yield Step("added", self.open, text)
        if call is not None:
            yield from self.close()

    def close(self) -> Iterator[Step]:
        """Close the open block, if there is one."""
        if self.open is not None:
            block, self.open = self.open, None
            yield Step("closed", block)

    def text(self, kind: Literal["reasoning", "text"]) -> str:
        """Of all blocks of this kind."""
        return "".join(block.text for block in self.all if block.kind == kind)

    @property
    def calls(self) -> list[Call]:
        return [block.call for block in self.all if block.call is not None]
