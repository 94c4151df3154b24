"""Arithmetic that the model declines: large numbers, negative results, fractions, powers, chains."""

import random

from training.corpus.conversation import Conversation, Turn
from training.kinds.arithmetic import (
    LARGEST,
    NUMBER_WORDS,
    PHRASES,
    SIGNS,
    WORDED,
    is_in_reach,
    phrase,
    value,
)  # fmt: skip
from training.kinds.stories.subjects import invented
from training.language.lexicon import NAMES, WORDS, plural
from training.language.template import FilledLater, expand
from training.text import sections

TEXT = sections("beyond_arithmetic")
UNITS = TEXT["units"][0].split("|")


def number(rng: random.Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)


def asked(rng: random.Random, expression: str) -> str:
    """Half of the questions have the wording of those that the model answers."""
    if rng.random() < 0.5:
        return rng.choice(PHRASES["symbols"]).format(e=expression)
    return rng.choice(TEXT["ask value"]).format(e=expression)


def two_numbers(rng: random.Random, a: object, sign: str, b: object) -> str:
    if rng.random() < 0.6:
        space = " " if rng.random() < 0.8 else ""
        return asked(rng, f"{a}{space}{rng.choice(SIGNS[sign])}{space}{b}")
    return phrase(rng, WORDED[sign], False, a=a, b=b)


def decline(rng: random.Random, question: str, section: str = "sorry sum", result: int | None = None) -> Turn:
    """A turn that declines; the right result, if given, also counts as right."""
    reach = rng.choice(TEXT["range"]).format(largest=LARGEST)
    answer = expand(rng, rng.choice(TEXT[section]), {"range": reach})
    if section in ("sorry negative", "sorry uneven") and rng.random() < 0.5:
        answer += f" {reach}"
    return Turn(question, answer, {"declines": "yes"} | ({} if result is None else {"or": str(result)}))


def large_sum(rng: random.Random) -> Turn:
    """One of the numbers is too large, mostly by little, because there the model is most tempted to answer."""
    digits = len(str(LARGEST))
    size = digits + rng.choices([1, 2, 3, 5, 9], [8, 4, 3, 2, 1])[0]
    pair = [number(rng, size), number(rng, rng.randint(1, size))]
    rng.shuffle(pair)
    sign = rng.choice("+-")
    a, b = sorted(pair, reverse=True) if sign == "-" else pair
    style = rng.random()
    if style < 0.12:
        return decline(rng, two_numbers(rng, f"{a:,}", sign, f"{b:,}"), result=value(a, sign, b))
    return decline(rng, two_numbers(rng, a, sign, b), result=value(a, sign, b))


def large_product(rng: random.Random) -> Turn:
    while True:
        a, b = (number(rng, rng.choices([1, 2, 3, 4, 6], [3, 10, 4, 2, 1])[0]) for _ in range(2))
        if not is_in_reach(a, "*", b):
            return decline(rng, two_numbers(rng, a, "*", b), result=a * b)


def quotient(rng: random.Random) -> Turn:
    """Division by zero, with a remainder, or beyond the tables."""
    if rng.random() < 0.15:
        a = rng.randint(0, rng.choice([12, 100, 10000]))
        return decline(rng, two_numbers(rng, a, "/", rng.choice(["0", "0", "zero"])), "zero")
    while True:
        if rng.random() < 0.7:
            a, b = rng.randint(1, rng.choice([12, 40, 144, 144])), rng.randint(2, 12)
        else:
            a, b = number(rng, rng.randint(1, 5)), number(rng, rng.choices([1, 2, 3], [4, 4, 2])[0])
        if b and not is_in_reach(a, "/", b):
            section = "sorry uneven" if a % b and a <= 144 and b <= 12 else "sorry sum"
            return decline(rng, two_numbers(rng, a, "/", b), section, None if a % b else a // b)


def negative(rng: random.Random) -> Turn:
    top = rng.choices([10, 20, 100, LARGEST], [4, 4, 5, 8])[0]
    if rng.random() < 0.75:
        a, b = sorted(rng.sample(range(top + 1), 2))
        if rng.random() < 0.3:
            a = max(0, b - rng.randint(1, 40))
        return decline(rng, two_numbers(rng, a, "-", b), "sorry negative", a - b)
    a, b = rng.randint(1, min(top, 1000)), rng.randint(0, min(top, 1000))
    sign = rng.choice("+-*/")
    form = rng.choice(
        [f"-{a} {sign} {b}", f"{b} {sign} -{a}", f"{b} {sign} (-{a})", f"-{a}", f"minus {a} {sign} {b}"]
    )
    return decline(rng, asked(rng, form))


def decimal(rng: random.Random) -> str:
    return f"{rng.randint(0, rng.choice([9, 99, 999]))}.{number(rng, rng.choice([1, 1, 2, 2, 3]))}"


def fractions(rng: random.Random) -> Turn:
    def part() -> str:
        kind = rng.random()
        if kind < 0.5:
            return decimal(rng)
        if kind < 0.8:
            return f"{rng.randint(1, 12)}/{rng.randint(2, 12)}"
        return str(rng.randint(0, 999))

    a, b, sign = part(), part(), rng.choice("+-*/")
    if a.isdigit() and b.isdigit():
        a = decimal(rng)
    if rng.random() < 0.05:
        return decline(rng, two_numbers(rng, f"${a}", sign, f"${b}"))
    return decline(rng, two_numbers(rng, a, sign, b))


def chain(rng: random.Random) -> Turn:
    """Several operations: mixed signs, brackets, or more than three numbers."""
    space = " " if rng.random() < 0.8 else ""
    count = rng.choices([3, 4, 5, 7, 10], [6, 4, 2, 1, 1])[0]
    numbers = [str(rng.randint(0, rng.choice([10, 20, 100, 1000]))) for _ in range(count)]
    signs = [rng.choice(SIGNS[rng.choice("+-*/")]) for _ in range(count - 1)]
    if count == 3 and set(signs) == {"+"}:
        numbers[rng.randrange(3)] = str(number(rng, rng.randint(3, 5)))
    parts = [numbers[0]]
    for sign, n in zip(signs, numbers[1:], strict=True):
        parts += [sign, n]
    if rng.random() < 0.3:
        first = 2 * rng.randrange(count - 1)
        parts[first], parts[first + 2] = "(" + parts[first], parts[first + 2] + ")"
    if rng.random() < 0.15:
        worded = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
        parts = [worded.get(part, part) for part in parts]
        space = " "
    return decline(rng, asked(rng, space.join(parts)))


def big_words(rng: random.Random) -> Turn:
    words = [
        rng.choice(TEXT["big words"][0].split("|")),
        rng.choice([*NUMBER_WORDS, str(rng.randint(0, 999))]),
    ]
    rng.shuffle(words)
    return decline(rng, phrase(rng, WORDED[rng.choice("+-*/")], False, a=words[0], b=words[1]))


def fillers(rng: random.Random):
    """The slots of the questions."""
    b = rng.randint(2, rng.choice([30, 100, 2000]))
    name, other = rng.sample(NAMES, 2)
    things, things2 = (plural(word) for word in rng.sample(WORDS["countable foods"], 2))
    fixed = {"a": b + rng.randint(1, 900), "b": b, "name": name, "other": other, "things": things, "things2": things2,
             "she": "she" if name in WORDS["girls"] else "he", "nth": rng.choice(["third", "fourth", "fifth", "tenth"]),
             "year": rng.randint(1900, 2024), "big": number(rng, rng.randint(5, 8)), "big2": number(rng, rng.randint(5, 8)), "noun": rng.choice(WORDS["animals"]),
             "odd": 2 * rng.randint(0, 300) + 1, "p": rng.choice([5, 10, 15, 20, 25, 50, rng.randint(1, 99)])}  # fmt: skip

    def fill(slot: str) -> str:
        if slot in ("dec", "dec2"):
            return decimal(rng)
        if slot in ("unit", "unit2"):
            return rng.choice(UNITS)
        if slot == "word":
            return invented(rng)
        return str(rng.randint(2, 12))

    slots = FilledLater(fill)
    slots.update(fixed)
    return slots


def expression(rng: random.Random) -> Turn:
    """Powers, roots, functions and percent."""
    form = rng.choice(TEXT[rng.choice(["powers", "roots", "functions", "percent"])][0].split("|"))
    return decline(rng, asked(rng, form.format_map(fillers(rng))))


def other_problem(rng: random.Random) -> Turn:
    return decline(rng, rng.choice(TEXT["questions"]).format_map(fillers(rng)))


def large_story(rng: random.Random) -> Turn:
    """A word problem with numbers out of reach."""
    kind, sign = rng.choice([("gain", "+"), ("loss", "-"), ("boxes", "*"), ("shares", "/")])
    while True:
        a, b = number(rng, rng.randint(1, 6)), number(rng, rng.randint(1, 5))
        if not is_in_reach(a, sign, b) and b:
            break
    slots = fillers(rng)
    slots.update({"a": a, "b": b})
    return decline(rng, rng.choice(PHRASES[kind]).format_map(slots))


KINDS = {large_sum: 14, large_product: 17, quotient: 28, negative: 14, fractions: 12, chain: 14, big_words: 3,
         expression: 12, other_problem: 18, large_story: 5}  # fmt: skip


def beyond_arithmetic(rng: random.Random, holdout: bool = False) -> Conversation:
    return [rng.choices(list(KINDS), list(KINDS.values()))[0](rng)]
