"""The subjects of stories: nouns, invented words, and the wishes for a character."""

import random

from training.corpus.split import choose_side
from training.language.lexicon import NOUN_KINDS, WORDS
from training.text import sections

PIECES = [
    word[start : start + size]
    for kind in (*NOUN_KINDS, "girls")
    for word in WORDS[kind]
    for start, size in ((0, 2), (0, 3), (1, 3), (2, 3), (0, 4))
    if word[start : start + size].isalpha()
]
INVENTED_SHARE = 0.2
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnprstvwz"


def invented(rng: random.Random) -> str:
    """A new word, so that the model learns to copy unknown words."""
    if rng.random() < 0.5:
        return "".join(rng.choices(PIECES, k=rng.randint(2, 3))).lower()
    parts = (
        rng.choice(CONSONANTS) + rng.choice(VOWELS) + rng.choice(["", "", *CONSONANTS])
        for _ in range(rng.randint(2, 4))
    )
    return "".join(parts)


def noun(rng: random.Random, kind: str, holdout: bool) -> str:
    """A noun of the kind; in training sometimes an invented word in its place.

    The tokenizer has one token for most nouns that it was trained on, and several for the others. Without
    invented words the model would rarely have to copy a subject token by token.
    """
    if not holdout and rng.random() < INVENTED_SHARE:
        return invented(rng)
    return rng.choice(choose_side(kind, WORDS[kind], holdout))


def table(name: str) -> dict[str, list[str]]:
    """The lines `key = values` of a section."""
    pairs = (line.split(" = ") for line in sections("story_wishes")[name])
    return {key: values.split() for key, values in pairs}


THEMES, BY_ADJECTIVE = table("themes"), table("adjectives")
FEARS = dict(line.split(" = ") for line in sections("story_wishes")["fears"])
SKILLS = sections("story_wishes")["skills"]
LINKING_WORDS = set(sections("story_wishes")["linking words"][0].split())


def plots_of(group: str) -> list[str]:
    return sections("story_wishes")[group][0].split()


def content_words(asked: str) -> list[str]:
    """The words of a request that its story must contain; a theme need not be named."""
    return [] if asked in THEMES else [word for word in asked.split() if word not in LINKING_WORDS]
