"""The template language of the generator: `[a|b]` chooses one, `{slot}` inserts a word."""

import random
import re
from collections.abc import Callable, Mapping

CHOICE = re.compile(r"\[([^\[\]]*)\]")


def expand(rng: random.Random, template: str, slots: Mapping[str, object] | None = None) -> str:
    """One expansion of a template; choices may be nested, the innermost is chosen first."""
    while CHOICE.search(template):
        template = CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    return template.format_map(slots) if slots else template


def plainest(template: str) -> str:
    """The expansion with the first of all choices, which is the most usual wording."""
    while CHOICE.search(template):
        template = CHOICE.sub(lambda match: match[1].split("|")[0], template)
    return template


def pattern(template: str) -> str:
    """A regular expression that matches every expansion of a template."""
    result = re.escape(template).replace(r"\[", "[").replace(r"\]", "]").replace(r"\|", "|")
    while CHOICE.search(result):
        result = CHOICE.sub(lambda match: f"(?:{match[1]})", result)
    return result


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


class FilledLater(dict):
    """Slots whose words are made on first use; a slot used twice keeps its word."""

    def __init__(self, make: Callable[[str], str]) -> None:
        self._make = make

    def __missing__(self, slot: str) -> str:
        word = self[slot] = self._make(slot)
        return word
