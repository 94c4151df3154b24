"""The disorder of real messages: greetings, missing or all capitals, missing punctuation, typing errors."""

import random
import re
from functools import cache

from training.language.lexicon import NAMES, WORDS
from training.text import blocks, read, sections

PHRASES = sections("disorder")
LONGEST = 400  # characters of a message that gets a greeting or a typing error


@cache
def mistyped() -> frozenset[str]:
    """Words that may get a typing error: those of the phrases, but no nouns or names that an answer repeats."""
    text = " ".join(
        " ".join(read(file)) for file in ("arithmetic", "explain", "story_requests", "out_of_domain")
    )
    text += " ".join(block["ask"] for file in ("small_talk", "facts") for block in blocks(file))
    text += " ".join(
        " ".join(lines) for name, lines in sections("word_tasks").items() if name.startswith("ask")
    )
    text += " ".join(block["names"] for block in blocks("glossary"))
    nouns = {word for words in WORDS.values() for noun in words for word in noun.lower().split()}
    return frozenset(
        word for word in re.findall(r"[A-Za-z]{4,}", text) if word.lower() not in nouns and word not in NAMES
    )


def typing_error(rng: random.Random, text: str) -> str:
    """In one word, a letter is added, dropped or wrong, or two are swapped."""
    words = [match for match in re.finditer(r"[A-Za-z]{4,}", text) if match[0] in mistyped()]
    if not words:
        return text
    i = rng.randrange((word := rng.choice(words)).start(), word.end() - 1)
    pair = text[i : i + 2]
    wrong = rng.choice(
        [pair[0], pair[1], pair[::-1], pair[0] + pair, rng.choice("abcdefghijklmnoprstuvwy") + pair[1]]
    )
    return text[:i] + wrong + text[i + 2 :]


def disorder(rng: random.Random, text: str, share: float = 1.0) -> str:
    """The text with disorder; training has a share of 1, a larger share gives more."""
    if len(text) < LONGEST and rng.random() < 0.07 * share:
        text = typing_error(rng, text)
    chance = rng.random() / share
    if chance < 0.08:
        text = text[:1].lower() + text[1:]
    elif chance < 0.16:
        text = text.lower()
    elif chance < 0.24:
        text = text.upper()
    if rng.random() < 0.14 * share:
        text = text.rstrip(".?!")
    elif rng.random() < 0.03 * share:
        text += text[-1:] if text.endswith(("?", "!")) else "..."
    return text


def polite(rng: random.Random, text: str, share: float = 1.0) -> str:
    """The text, sometimes with a greeting or another clause before it, or thanks after it."""
    if len(text) > LONGEST:
        return text
    if rng.random() < 0.12 * share:
        clause = rng.choice(PHRASES["in front"]).format(name=rng.choice(NAMES))
        if clause.endswith((",", ":")) and rng.random() < 0.5 and text[1:2].islower():
            text = text[:1].lower() + text[1:]
        text = f"{clause} {text}"
    if rng.random() < 0.04 * share:
        ending = rng.choice(PHRASES["at the end"])
        text = (
            text.rstrip(".") + ending
            if ending.startswith(",") and not text.endswith(("?", "!"))
            else f"{text} {ending.lstrip(', ')}"
        )
    return text
