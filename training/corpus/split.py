"""Which items are kept out of training: a stable hash of the text decides, so every process agrees."""

import hashlib
from functools import cache

HELD_OUT_ONE_IN = 12


def held_out(kind: str, item: str) -> bool:
    """True for about one item in twelve of each kind; such items appear only in the held-out set."""
    digest = hashlib.sha256(f"{kind}:{item}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


@cache
def sides(kind: str, items: tuple[str, ...]) -> tuple[list[str], list[str]]:
    held = {item for item in items if held_out(kind, item)}
    return [item for item in items if item not in held], [item for item in items if item in held]


def choose_side(kind: str, items: list[str], holdout: bool) -> list[str]:
    """The training side or the held-out side of a list; a list with nothing to hold out is used by both."""
    return sides(kind, tuple(items))[holdout] or items


def normal(question: str) -> str:
    """A question without the marks that the split must not depend on."""
    return " ".join("".join(c if c.isalnum() else " " for c in question.lower()).split())
