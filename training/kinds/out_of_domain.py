"""Questions about the world, tasks and statements, which so small a model declines."""

import random
from functools import cache

from training.corpus.conversation import Conversation, Turn
from training.kinds.stories.subjects import invented
from training.language.lexicon import WORDS, a, plural
from training.language.template import FilledLater, expand, sentence_case
from training.text import sections

PHRASES = sections("out_of_domain")
POOLS = {kind: line.split("|") for kind, lines in sections("world").items() for line in lines}
NOUNS = [
    word for kind in ("animals", "roles", "objects", "places", "foods", "plants") for word in WORDS[kind]
]
QUALITIES = POOLS["quality"] + WORDS["character adjectives"] + WORDS["thing adjectives"]
WORK = (
    "Write ", "Translate ", "Give ", "Make ", "Compose ", "Draft ", "Order ", "Book ", "Call ", "Send ", "Play ", "Turn ",
    "Open ", "Buy ", "Draw ", "Show ", "Paint ", "Record ", "Read ", "Run ", "Delete ", "Search ", "Set ", "Remind ",
    "Sing ", "Rewrite ", "Fix ", "Debug ", "Plan ", "Solve ", "Summarize ", "Please write ", "Can you write ", "Help me write ",
)  # fmt: skip

# The fillers of slots; other slots are drawn from the pool of their name.
FILLERS = {
    "title": lambda rng: f"The {rng.choice(POOLS['title'])} {rng.choice(WORDS['objects'] + WORDS['places']).title()}",
    "object": lambda rng: a(rng.choice(WORDS["objects"])),
    "job": lambda rng: a(rng.choice(WORDS["jobs"])),
    "name": lambda rng: rng.choice(WORDS["girls"]),
    "animal": lambda rng: a(rng.choice(WORDS["animals"])),
    "animals": lambda rng: plural(rng.choice(WORDS["animals"])),
    "surname": lambda rng: invented(rng).title(),
    "word": invented,
    "year": lambda rng: str(rng.randint(1000, 2060)),
    "big": lambda rng: str(rng.randint(10000, 99999)),
    "small": lambda rng: str(rng.randint(2, 60)),
    "noun": lambda rng: rng.choice(NOUNS),
    "plural": lambda rng: plural(rng.choice(NOUNS)),
    "plainword": lambda rng: rng.choice([rng.choice(POOLS["plain word"]), rng.choice(NOUNS), rng.choice(QUALITIES), invented(rng)]),
    "any": lambda rng: rng.choice(POOLS["plain word"]),
    "quality": lambda rng: rng.choice(QUALITIES),
    "time": lambda rng: rng.choice(POOLS["unit of time"]),
    "textkind": lambda rng: rng.choice(POOLS["text kind"]),
    "codetask": lambda rng: rng.choice(POOLS["code task"]),
    "code": lambda rng: filled(rng, rng.choice(PHRASES["code"])),
    "riddle": lambda rng: filled(rng, rng.choice(PHRASES["riddles"])),
    "statement": lambda rng: filled(rng, rng.choice(PHRASES["statements"])),
    "question": lambda rng: rng.choice(PHRASES["questions after"]),
}  # fmt: skip


@cache
def filler(slot: str):
    """The filler of a slot: a trailing digit means another draw, a capital letter a capitalised word."""
    name = slot.rstrip("0123456789")
    if name[0].isupper():
        return lambda rng: sentence_case(filler(name.lower())(rng))
    return FILLERS.get(name) or (lambda rng: rng.choice(POOLS[name]))


def filled(rng: random.Random, question: str) -> str:
    return question.format_map(FilledLater(lambda slot: filler(slot)(rng)))


def refusal(rng: random.Random, question: str, form: str) -> str:
    section = (
        "sorry statement" if form == "{statement}" else "sorry work" if question.startswith(WORK) else "sorry"
    )
    if section != "sorry" and rng.random() < 0.3:
        section = "sorry statement" if form == "{statement}" else "sorry"
    offer = f" {expand(rng, rng.choice(PHRASES['offer']))}" if rng.random() < 0.8 else ""
    return expand(rng, rng.choice(PHRASES[section])) + offer


def out_of_domain(rng: random.Random, holdout: bool = False) -> Conversation:
    form = rng.choice(PHRASES["questions"]) if rng.random() < 0.93 else "{statement}"
    question = sentence_case(filled(rng, form))
    return [Turn(question, refusal(rng, question, form), {"declines": "yes"})]
