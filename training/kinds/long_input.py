"""Long and repetitive messages of up to the whole context, which are answered briefly."""

import random

from training.corpus.conversation import Conversation, Turn
from training.kinds.out_of_domain import NOUNS, POOLS, QUALITIES, out_of_domain
from training.kinds.stories.requests import story
from training.kinds.stories.subjects import invented
from training.language.template import expand
from training.text import sections

TEXT = sections("long_input")
LEADS, TAILS, REPEATED = (TEXT[name][0].split("|") for name in ("lead", "tail", "repeated"))
SMALL_WORDS = (
    "the a of and to in is it that was for on with as at by from or but not this they we you he she".split()
)
SHORTEST, LONGEST = 130, 1900  # tokens, approximately
SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789 .,;:!?()[]{}<>+-*/=_#$%&'\"\n"


def tokens(rng: random.Random, shortest: int = SHORTEST) -> float:
    """A length from a log-uniform distribution."""
    return shortest * (LONGEST / shortest) ** rng.random()


def repeated(rng: random.Random, size: int) -> str:
    """One word, phrase or sign, repeated."""
    what = (
        rng.choice(REPEATED)
        if rng.random() < 0.6
        else rng.choice([rng.choice(NOUNS), invented(rng), question(rng)])
    )
    if rng.random() < 0.1:
        what = what.upper()
    separator = rng.choice([" ", " ", " ", ", ", "\n", ""])
    times = max(6, int(size / max(1, len(what.split()))))
    if not separator and what.isalnum():
        times = min(times, 400)
    return separator.join([what] * times)


def question(rng: random.Random) -> str:
    return out_of_domain(rng)[0].user


def words(rng: random.Random, size: int) -> str:
    """Meaningless sentences."""
    result: list[str] = []
    vocabulary = [*rng.choices(NOUNS, k=20), *rng.choices(QUALITIES, k=8), *(invented(rng) for _ in range(12)),
                  *rng.choices(POOLS["field"], k=6), *SMALL_WORDS]  # fmt: skip
    while len(result) < size:
        sentence = rng.choices(vocabulary, k=rng.randint(4, 14))
        result += [
            sentence[0].capitalize(),
            *sentence[1:-1],
            sentence[-1] + rng.choice([".", ".", ".", "?", ","]),
        ]
    return " ".join(result)


def sentences(rng: random.Random, size: int, make) -> str:
    result, count = [], 0
    while count < size:
        result.append(make(rng))
        count += len(result[-1].split())
    return rng.choice([" ", " ", "\n", "\n\n"]).join(result)


def numbers(rng: random.Random, size: int) -> str:
    return rng.choice([" ", ", ", "\n", "+", " + "]).join(str(rng.randint(0, 999)) for _ in range(size // 3))


def code(rng: random.Random, size: int) -> str:
    from training.kinds.out_of_domain import PHRASES, filled

    return sentences(rng, size // 2, lambda rng: filled(rng, rng.choice(PHRASES["code"])))


def noise(rng: random.Random, size: int) -> str:
    return "".join(rng.choices(SYMBOLS, k=size))


def texts(rng: random.Random, size: int) -> str:
    return sentences(rng, size, lambda rng: story(rng)[0].assistant)


def questions(rng: random.Random, size: int) -> str:
    return sentences(rng, size, question)


# maker | weight | tokens per unit of its size
KINDS = {repeated: (30, 1.5), words: (20, 2.0), texts: (18, 1.4), questions: (16, 1.7), numbers: (6, 1.6), code: (5, 2.0), noise: (5, 0.8)}  # fmt: skip


def long_input(rng: random.Random, holdout: bool = False) -> Conversation:
    make = rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    size = tokens(rng, 12 if make is repeated else SHORTEST) / KINDS[make][1]
    lead = rng.choice(LEADS) if rng.random() < 0.35 else ""
    tail = rng.choice(TAILS) if rng.random() < 0.35 else ""
    answers = TEXT["again"] if make is repeated and rng.random() < 0.6 else TEXT["answer"]
    return [
        Turn(f"{lead}{make(rng, int(size))}{tail}", expand(rng, rng.choice(answers)), {"declines": "yes"})
    ]
