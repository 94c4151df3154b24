"""A story in progress: its persons, its words, and its sentences so far."""

import random
from dataclasses import dataclass, field

from training.language.lexicon import NAMES, WORDS, a
from training.language.template import expand, sentence_case
from training.text import sections


@dataclass
class Person:
    name: str
    noun: str
    she: bool
    phrase: str

    def slots(self, prefix: str) -> dict[str, str]:
        he, him, his = ("she", "her", "her") if self.she else ("he", "him", "his")
        words = {
            "he": he,
            "him": him,
            "his": his,
            "himself": him + "self",
            "He": he.title(),
            "His": his.title(),
        }
        return {prefix + key: value for key, value in words.items()}


@dataclass
class Tale:
    """`key` sentences carry the plot; `say` and `maybe` sentences are left out of a very short story."""

    rng: random.Random
    hero: Person
    friend: Person
    brief: bool = False
    words: dict[str, str] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    questions: list[tuple[str, str]] = field(default_factory=list)
    summary: str = ""

    def __post_init__(self) -> None:
        self.words |= self.hero.slots("") | self.friend.slots("f")
        self.words |= {
            "Hero": self.hero.name,
            "kind": self.hero.noun,
            "a_kind": self.hero.phrase,
            "Friend": self.friend.name,
            "fkind": self.friend.noun,
            "a_fkind": self.friend.phrase,
            "A_fkind": sentence_case(self.friend.phrase),
            "home": self.rng.choice(sections("story_parts")["homes"]),
        }

    def fill(self, template: str) -> str:
        return sentence_case(expand(self.rng, template, self.words))

    def add(self, variants: list[str]) -> None:
        self.sentences.append(self.fill(self.rng.choice(variants)))

    def about(self, thing: str, phrase: str | None = None) -> None:
        """Make {thing} the subject; {a_thing} is its phrase with an article."""
        self.words |= {"thing": thing, "a_thing": phrase or a(thing)}
        self.words["A_thing"] = sentence_case(self.words["a_thing"])

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def person(rng: random.Random, noun: str, phrase: str = "", name: str = "", apart: str = "") -> Person:
    """A person or animal of a kind; `apart` is a name already taken in the story."""
    she = noun in WORDS["girl kinds"] or (noun not in WORDS["boy kinds"] and rng.random() < 0.5)
    if name in NAMES:
        she = name in WORDS["girls"]
    while not name or name == apart:
        name = rng.choice(WORDS["girls" if she else "boys"])
    return Person(name, noun, she, phrase or a(noun))


def friend_of(rng: random.Random, hero: Person) -> Person:
    noun = rng.choice(WORDS["animals" if rng.random() < 0.6 else "roles"])
    while noun == hero.noun:
        noun = rng.choice(WORDS["animals"])
    adjective = f"{rng.choice(WORDS['friend adjectives'])} " if rng.random() < 0.4 else ""
    return person(rng, noun, a(adjective + noun), apart=hero.name)
