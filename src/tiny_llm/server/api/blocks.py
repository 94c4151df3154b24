"""An answer as a row of blocks: reasoning, text and calls, each opened, filled and closed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from .pieces import Call, Piece, Reasoning


@dataclass(slots=True)
class Block:
    """`call` is that of a block of the kind "call", which has no text."""

    index: int
    kind: Literal["reasoning", "text", "call"]
    call: Call | None = None
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Opened:
    block: Block


@dataclass(frozen=True, slots=True)
class Added:
    block: Block
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    block: Block


Step = Opened | Added | Closed


class Blocks:
    """The blocks of one answer, from its pieces. `open` is the one that may get more text."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.open: Block | None = None

    def add(self, piece: Piece) -> Iterator[Step]:
        """What a piece changes. A piece of another kind closes the open block."""
        if isinstance(piece, Call):
            yield from self.close()
            block = self._new(Block(len(self.blocks), "call", piece))
            yield Opened(block)
            yield Closed(block)
            return
        kind: Literal["reasoning", "text"] = "reasoning" if isinstance(piece, Reasoning) else "text"
        if self.open is None or self.open.kind != kind:
            yield from self.close()
            self.open = self._new(Block(len(self.blocks), kind))
            yield Opened(self.open)
        self.open.parts.append(piece.text)
        yield Added(self.open, piece.text)

    def close(self) -> Iterator[Step]:
        """Close the open block, if there is one."""
        if self.open is not None:
            block, self.open = self.open, None
            yield Closed(block)

    def _new(self, block: Block) -> Block:
        self.blocks.append(block)
        return block
