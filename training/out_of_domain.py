"""Questions that so small a model cannot answer, and the polite way to say so."""

import random

from training.conversation import Conversation, Turn
from training.lexicon import WORDS, a, plural
from training.stories.subjects import invented
from training.template import expand
from training.text import sections

PHRASES = sections("out_of_domain")


def words(rng: random.Random) -> dict[str, str]:
    """A filler for every slot of the questions."""
    pools = {kind: line.split("|") for kind, lines in sections("world").items() for line in lines}
    country, country2 = rng.sample(pools["country"], 2)
    city, city2 = rng.sample(pools["city"], 2)
    animal, animal2 = rng.sample(WORDS["animals"], 2)
    title = f"The {rng.choice(pools['title'])} {rng.choice(WORDS['objects'] + WORDS['places']).title()}"
    simple = {
        kind: rng.choice(pools[kind]) for kind in ("person", "language", "field", "dish", "verb", "ordinal")
    }
    return simple | {
        "country": country, "country2": country2, "city": city, "city2": city2, "title": title,
        "programming": rng.choice(pools["programming"]), "programming2": rng.choice(pools["programming"]),
        "object": a(rng.choice(WORDS["objects"])), "job": a(rng.choice(WORDS["jobs"])), "name": rng.choice(WORDS["girls"]),
        "animal": a(animal), "animal2": a(animal2), "animals": plural(animal), "surname": invented(rng).title(),
        "word": invented(rng), "year": str(rng.randint(1000, 2060)), "big": str(rng.randint(10000, 99999)),
        "big2": str(rng.randint(1000, 9999)),
    }  # fmt: skip


def out_of_domain(rng: random.Random, holdout: bool = False) -> Conversation:
    question = rng.choice(PHRASES["questions"]).format_map(words(rng))
    offer = f" {expand(rng, rng.choice(PHRASES['offer']))}" if rng.random() < 0.8 else ""
    return [Turn(question, expand(rng, rng.choice(PHRASES["sorry"])) + offer, {"declines": "yes"})]
