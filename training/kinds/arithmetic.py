"""Arithmetic that the model can do: problems with one exact answer, in many wordings, answered in one short sentence.

`is_in_reach` is the limit; beyond it the model declines, see beyond_arithmetic.py.
"""

import random

from training.corpus.conversation import Conversation, Turn
from training.corpus.split import choose_side, held_out
from training.language.lexicon import NAMES, WORDS, plural
from training.text import sections

PHRASES = sections("arithmetic")
UNITS, TENS = (line.split() for line in PHRASES["number words"])
NUMBER_WORDS = UNITS + [f"{ten}-{unit}".removesuffix("-zero") for ten in TENS for unit in UNITS[:10]]
LARGEST = 999  # number to add or subtract
SIGNS = {"+": ["+"], "-": ["-"], "*": ["*", "x", "*", "×"], "/": ["/", "/", "÷", ":"]}
WORDED = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


def value(a: int, sign: str, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[sign]


def is_in_reach(a: int, sign: str, b: int) -> bool:
    """Whether the model is trained to give the result, rather than to decline."""
    low, high = min(a, b), max(a, b)
    if sign == "/":
        return b > 0 and a % b == 0 and a // b <= 12 and b <= 12
    if sign == "*":
        return high <= 12 or (low <= 9 and high <= 99)
    return high <= LARGEST and (sign == "+" or a >= b)


def phrase(rng: random.Random, form: str, holdout: bool, **words: object) -> str:
    return rng.choice(choose_side(f"arithmetic {form}", PHRASES[form], holdout)).format_map(words)


def operands(rng: random.Random, sign: str) -> tuple[int, int]:
    if sign == "*":
        return (
            (rng.randint(0, 12), rng.randint(0, 12))
            if rng.random() < 0.4
            else tuple(rng.sample([rng.randint(10, 99), rng.randint(0, 9)], 2))
        )
    if sign == "/":
        quotient, divisor = rng.randint(0, 12), rng.randint(1, 12)
        return quotient * divisor, divisor
    top = rng.choices([10, 20, 100, LARGEST + 1], [2, 4, 10, 28])[0]
    a, b = rng.randint(0, top - 1), rng.randint(0, top - 1)
    if top > LARGEST and rng.random() < 0.3:
        a, b = (a // 100 * 100, b // 100 * 100) if rng.random() < 0.2 else (a, rng.randint(0, 99))
        a, b = rng.sample([a, b], 2)
    if sign == "-" and rng.random() < 0.25:
        b = max(0, a - rng.randint(0, 40))  # results with fewer digits are the hard part
    return (b, a) if sign == "-" and a < b else (a, b)


def problem(rng: random.Random, holdout: bool, signs: str = "++----**/") -> tuple[int, str, int]:
    """Sums and differences are held out by their numbers; small ones, products and quotients are tables to learn."""
    while True:
        sign = rng.choice(signs)
        a, b = operands(rng, sign)
        table = sign in "*/" or max(a, b) < 20
        if table and not (holdout and sign in "+-"):
            return a, sign, b
        if not table and held_out(sign, f"{min(a, b)},{max(a, b)}") == holdout:
            return a, sign, b


def result(number: int) -> dict[str, str]:
    return {"number": str(number)}


def shown(rng: random.Random, n: int) -> str:
    """A number, mostly in digits, sometimes in words or with a comma."""
    if n < len(NUMBER_WORDS) and rng.random() < 0.12:
        return NUMBER_WORDS[n]
    return f"{n:,}" if rng.random() < 0.06 else str(n)


def plain(rng: random.Random, holdout: bool) -> Turn:
    a, sign, b = problem(rng, holdout)
    total, answer = value(a, sign, b), f"{a} {sign} {b} = {value(a, sign, b)}."
    x, y = shown(rng, a), shown(rng, b)
    if rng.random() < 0.5:
        space = " " if rng.random() < 0.8 or not (x + y).isdigit() else ""
        expression = f"{x}{space}{rng.choice(SIGNS[sign])}{space}{y}"
        return Turn(phrase(rng, "symbols", holdout, e=expression), answer, result(total))
    return Turn(phrase(rng, WORDED[sign], holdout, a=x, b=y), answer, result(total))


def chain(rng: random.Random, holdout: bool) -> Turn:
    a, b, c = (rng.randint(0, rng.choice([10, 20, 99])) for _ in range(3))
    answer = f"{a} + {b} = {a + b}, and {a + b} + {c} = {a + b + c}."
    return Turn(phrase(rng, "chain", holdout, a=a, b=b, c=c), answer, result(a + b + c))


def word_problem(rng: random.Random, holdout: bool) -> Turn:
    """A word problem."""
    name, other = rng.sample(NAMES, 2)
    things = plural(rng.choice(WORDS["countable foods"]))
    kind = rng.choices(["gain", "loss", "boxes", "shares"], [4, 4, 1, 1])[0]
    sign = {"gain": "+", "loss": "-", "boxes": "*", "shares": "/"}[kind]
    a, b = operands(rng, sign) if sign in "*/" else rng.sample(range(2, rng.choice([20, 100, 1000])), 2)
    a, b = (max(a, b), min(a, b)) if sign == "-" else (a, b)
    she = "she" if name in WORDS["girls"] else "he"
    question = phrase(rng, kind, holdout, name=name, other=other, things=things, she=she, a=a, b=b)
    total = value(a, sign, b)
    return Turn(question, f"{a} {sign} {b} = {total}, so the answer is {total}.", result(total))


def compare(rng: random.Random, holdout: bool) -> Turn:
    a, b = rng.sample(range(rng.choice([20, 100, LARGEST + 1])), 2)
    more = rng.choice(["bigger", "larger", "greater", "smaller", "less"])
    first, second = (min(a, b), max(a, b)) if more in ("smaller", "less") else (max(a, b), min(a, b))
    return Turn(
        phrase(rng, "compare", holdout, a=a, b=b, more=more),
        f"{first} is {more} than {second}.",
        {"begins": str(first)},
    )


def neighbor(rng: random.Random, holdout: bool) -> Turn:
    n = rng.randint(1, rng.choice([20, 100, LARGEST]))
    kind, other = rng.choice([("after", n + 1), ("before", n - 1)])
    return Turn(phrase(rng, kind, holdout, n=n), f"{kind.title()} {n} comes {other}.", result(other))


def twice(rng: random.Random, holdout: bool) -> Turn:
    n = rng.randint(0, rng.choice([50, 100, 499]))
    if rng.random() < 0.5:
        return Turn(phrase(rng, "double", holdout, n=n), f"{n} + {n} = {2 * n}.", result(2 * n))
    return Turn(phrase(rng, "half", holdout, n=2 * n), f"{2 * n} / 2 = {n}.", result(n))


def parity(rng: random.Random, holdout: bool) -> Turn:
    n = rng.randint(0, 10 ** rng.randint(1, 6) - 1)
    word = "odd" if n % 2 else "even"
    return Turn(phrase(rng, "parity", holdout, n=n), f"{n} is {word}.", {"exact": f"{n} is {word}."})


def count(rng: random.Random, holdout: bool) -> Turn:
    kind = rng.choice(["count", "count to", "count down"])
    first = rng.randint(0, 90) if kind == "count" else 1
    last = first + rng.randint(2, 11) if kind == "count" else rng.randint(3, 20)
    numbers = list(range(first, last + 1))[:: -1 if kind == "count down" else 1]
    end = NUMBER_WORDS[last] if kind != "count" and rng.random() < 0.4 else last
    answer = ", ".join(map(str, numbers)) + "."
    return Turn(phrase(rng, kind, holdout, a=first, b=end), answer, {"exact": answer})


def follow_up(rng: random.Random, total: int) -> Turn:
    """A second question about the first result."""
    b = rng.randint(1, 20)
    sign = rng.choice("+-") if total >= b else "+"
    return Turn(
        rng.choice(PHRASES[f"more {sign}"]).format(b=b), f"{total} {sign} {b} = {value(total, sign, b)}."
    )


KINDS = {plain: 60, chain: 5, word_problem: 20, compare: 6, neighbor: 4, twice: 4, parity: 3, count: 4}


def arithmetic(rng: random.Random, holdout: bool = False) -> Conversation:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    first = kind(rng, holdout)
    if kind is plain and rng.random() < 0.08:
        total = int(first.facts["number"])
        return [
            first,
            follow_up(rng, total)
            if 0 <= total < LARGEST - 20 and rng.random() < 0.7
            else plain(rng, holdout),
        ]
    return [first]
