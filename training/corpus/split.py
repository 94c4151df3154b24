"""The items that are held out of training, chosen by a stable hash of the text."""

import hashlib
from functools import cache

HELD_OUT_ONE_IN = 12


def held_out(kind: str, item: str) -> bool:
    """True for about one item in twelve of each kind; these appear only in the held-out set."""
    digest = hashlib.sha256(f"{kind}:{item}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


@cache
def sides(kind: str, items: tuple[str, ...]) -> tuple[list[str], list[str]]:
    held = {item for item in items if held_out(kind, item)}
    return [item for item in items if item not in held], [item for item in items if item in held]


def choose_side(kind: str, items: list[str], holdout: bool) -> list[str]:
    """The training side or the held-out side of a list; if nothing is held out, both sides are the whole list."""
    return sides(kind, tuple(items))[holdout] or items


def normal(question: str) -> str:
    """A question in lower case without punctuation: the split does not depend on these."""
    return " ".join("".join(c if c.isalnum() else " " for c in question.lower()).split())
