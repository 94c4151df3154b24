"""Small tasks with words: days and months, opposites, kinds of things, sounds, letters, plurals."""

import random
import string

from training.corpus.conversation import Conversation, Turn
from training.kinds.stories.subjects import invented
from training.language.lexicon import IRREGULAR, WORDS, a, plural
from training.language.template import FilledLater, expand, sentence_case
from training.text import sections

TEXT = sections("word_tasks")
Task = tuple[str, str, str]  # question, answer, and what a right answer contains


def table(name: str) -> list[tuple[str, str]]:
    return [(key, value) for key, value in (line.split(" = ") for line in TEXT[name])]


def phrase(rng: random.Random, name: str, **words: str) -> str:
    return expand(rng, rng.choice(TEXT[f"ask {name}"]), words)


ORDERS = {
    "day": TEXT["days"][0].split(),
    "month": TEXT["months"][0].split(),
    "season": TEXT["seasons"][0].split(),
    "letter": list(string.ascii_uppercase),
}
LISTS = {
    "days of the week": ORDERS["day"], "days": ORDERS["day"], "months of the year": ORDERS["month"],
    "months": ORDERS["month"], "seasons": ORDERS["season"], "letters of the alphabet": ORDERS["letter"],
    "vowels": list("aeiou"), "colors of the rainbow": "red orange yellow green blue indigo violet".split(),
    "primary colors": ["red", "yellow", "blue"],
}  # fmt: skip
NAMES_OF_KINDS = dict(table("kinds"))
AMBIGUOUS = {"light", "short", "old", "right"}  # words with two opposites: asked in one direction only
PLAIN_WORDS = [w for kind in ("animals", "foods", "objects", "plants") for w in WORDS[kind] if w.isalpha()]


def order(rng: random.Random) -> Task:
    kind, items = rng.choice(list(ORDERS.items()))
    i = rng.randrange(1, len(items) - 1) if kind == "letter" else rng.randrange(len(items))
    side = rng.choice(["after", "before"])
    other = items[(i + 1) % len(items)] if side == "after" else items[i - 1]
    answer = f"{sentence_case(other)} comes {side} {items[i]}."
    return phrase(rng, side, kind=kind, x=items[i]), answer, answer


def whole_list(rng: random.Random) -> Task:
    kind, items = rng.choice(list(LISTS.items()))
    answer = f"The {kind} are {', '.join(items[:-1])} and {items[-1]}."
    return phrase(rng, "all", kind=kind), answer, answer


def opposite(rng: random.Random) -> Task:
    first, second = rng.choice(TEXT["opposites"]).split()
    if rng.random() < 0.5 and not {first, second} & AMBIGUOUS:
        first, second = second, first
    return phrase(rng, "opposite", x=first), f"The opposite of {first} is {second}.", second


def color(rng: random.Random) -> Task:
    what, hue = rng.choice(table("colors"))
    return phrase(rng, "color", x=what), sentence_case(f"{what} is {hue}."), hue


def sound(rng: random.Random) -> Task:
    animal, call = rng.choice(table("sounds"))
    return phrase(rng, "sound", x=a(animal)), sentence_case(f"{a(animal)} says {call}."), call


def legs(rng: random.Random) -> Task:
    animal, number = rng.choice(table("legs"))
    limbs = "arms" if animal == "octopus" else "legs"
    answer = sentence_case(f"{a(animal)} has {'no' if number == '0' else number} {limbs}.")
    return phrase(rng, "legs", x=a(animal)), answer, answer


def baby(rng: random.Random) -> Task:
    animal, name = rng.choice(table("babies"))
    return phrase(rng, "baby", x=animal), f"A baby {animal} is called {a(name)}.", name


def home(rng: random.Random) -> Task:
    who, where = rng.choice(table("homes"))
    return phrase(rng, "home", x=who), sentence_case(f"{who} lives {where}."), where


def number_of(rng: random.Random) -> Task:
    what, answer = rng.choice(table("counts"))
    return phrase(rng, "count", x=what), answer, answer


def kind_of(rng: random.Random) -> Task:
    kind = rng.choice(list(NAMES_OF_KINDS))
    noun = rng.choice([w for w in WORDS[kind] if kind != "animals" or w not in WORDS["birds"]])
    answer = sentence_case(f"{a(noun)} is {NAMES_OF_KINDS[kind]}.")
    return phrase(rng, "kind", x=a(noun)), answer, answer


def is_it(rng: random.Random) -> Task:
    kinds = ["animals", "plants", "places", "instruments", "vehicles", "fruits"]
    kind = rng.choice(kinds)
    asked = kind if rng.random() < 0.4 else rng.choice(kinds)
    noun = a(rng.choice(WORDS[kind]))
    answer = f"{'Yes' if asked == kind else 'No'}, {noun} is {NAMES_OF_KINDS[kind]}."
    return phrase(rng, "is it", x=noun, kind=NAMES_OF_KINDS[asked]), answer, answer


def first_letter(rng: random.Random) -> Task:
    word = rng.choice(PLAIN_WORDS)
    answer = f"The first letter of {word} is {word[0].upper()}."
    return phrase(rng, "first letter", x=word), answer, answer


def spelling(rng: random.Random) -> Task:
    word = rng.choice(PLAIN_WORDS + WORDS["jobs"])
    spelled = "-".join(word.upper())
    return phrase(rng, "spelling", x=word), f"{sentence_case(word)} is spelled {spelled}.", spelled


def more_than_one(rng: random.Random) -> Task:
    word = rng.choice(PLAIN_WORDS + list(IRREGULAR))
    return phrase(rng, "plural", x=word), f"The plural of {word} is {plural(word)}.", plural(word)


def past(rng: random.Random) -> Task:
    verb, went = rng.choice(table("past"))
    return phrase(rng, "past", x=verb), f"The past tense of {verb} is {went}.", went


TASKS = (
    order, order, whole_list, opposite, opposite, color, sound, legs, baby, home, number_of, kind_of, kind_of, is_it, is_it,
    first_letter, spelling, spelling, more_than_one, past,
)  # fmt: skip


KNOWN = {name: {key for key, _ in table(name)} for name in ("colors", "sounds", "legs", "babies", "homes")}
OPPOSITES = {word for pair in TEXT["opposites"] for word in pair.split()}


def without(words: list[str], known: set[str]) -> list[str]:
    return [word for word in words if not {word, a(word)} & known]


ANIMALS, OBJECTS = WORDS["animals"], WORDS["objects"]
UNKNOWN = {
    "noun": without(PLAIN_WORDS, OPPOSITES), "object": [a(w) for w in OBJECTS], "plural": [plural(w) for w in PLAIN_WORDS],
    "animal": [a(w) for w in without(ANIMALS, KNOWN["colors"])],
    "silent": [a(w) for w in without(ANIMALS, KNOWN["sounds"])],
    "uncounted": [a(w) for w in without(ANIMALS, KNOWN["legs"])],
    "unknown baby": without(ANIMALS, KNOWN["babies"]),
    "homeless": [a(w) for w in without(ANIMALS + OBJECTS + WORDS["jobs"], KNOWN["homes"])],
    "verb": [key for key, _ in table("past")], "ordinal": ["second", "third", "fourth", "last"],
    "day": ORDERS["day"], "month": ORDERS["month"],
}  # fmt: skip


def unknown_word(rng: random.Random, slot: str) -> str:
    slot = slot.rstrip("0123456789")
    if slot == "word":
        return invented(rng)
    if slot == "number":
        return str(rng.randint(2, 40))
    return invented(rng) if slot == "noun" and rng.random() < 0.15 else rng.choice(UNKNOWN[slot])


def not_in_the_table(rng: random.Random) -> Turn:
    """A task in the usual wording, about a word that has no entry in its table."""
    form = expand(rng, rng.choice(TEXT["unknown"]))
    question = sentence_case(form.format_map(FilledLater(lambda slot: unknown_word(rng, slot))))
    return Turn(question, expand(rng, rng.choice(TEXT["sorry"])), {"declines": "yes"})


def word_task(rng: random.Random, holdout: bool = False) -> Conversation:
    if rng.random() < 0.17:
        return [not_in_the_table(rng)]
    question, answer, key = rng.choice(TASKS)(rng)
    return [Turn(question, answer, {"contains": key})]
