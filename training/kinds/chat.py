"""Greetings and small talk: about the model, the day, and the user's name."""

import random

from training.corpus.conversation import Conversation, Turn
from training.kinds.stories.subjects import invented
from training.language.lexicon import NAMES
from training.language.template import expand
from training.text import blocks, sections

SMALL_TALK = blocks("small_talk")
NAMING = sections("names")


def small_talk(rng: random.Random) -> Turn:
    talk = rng.choice(SMALL_TALK)
    fitting = f"[{talk['answer']}|{talk['also']}]" if "also" in talk else talk["answer"]
    return Turn(expand(rng, talk["ask"]), expand(rng, talk["answer"]), {"reply": fitting})


def some_name(rng: random.Random) -> str:
    """A name in any case, often an invented one, because the model must repeat names that it has never seen."""
    name = rng.choice(NAMES) if rng.random() < 0.5 else invented(rng).title()
    chance = rng.random()
    return name.lower() if chance < 0.12 else name.upper() if chance < 0.18 else name


def said(rng: random.Random, section: str, **slots: str) -> str:
    text = expand(rng, rng.choice(NAMING[section]), slots)
    return (
        text.lower()
        if slots.get("name", "").islower()
        else text.upper()
        if slots.get("name", "").isupper()
        else text
    )


def acquaintance(rng: random.Random) -> Conversation:
    """The user gives a name, their own or another person's, and may ask for it at once or later."""
    name = some_name(rng)
    slots = {"name": name}
    own = rng.random() < 0.75
    if not own:
        slots["who"] = rng.choice(NAMING["who"][0].split("|"))
    tell, ask, right = (
        ("tell", "ask", "Your name is {name}.")
        if own
        else ("tell of", "ask of", "Your {who} is called {name}.")
    )
    facts, right = {"contains": name}, right.format(**slots)
    if rng.random() < 0.3:
        both = f"{said(rng, tell, **slots).rstrip('.!')}. {said(rng, ask, **slots)}"
        return [Turn(both, right, facts, as_is=True)]
    welcome = expand(rng, rng.choice(NAMING["welcome" if own else "welcome of"]), slots)
    conversation = [Turn(said(rng, tell, **slots), welcome, facts, as_is=True)]
    if rng.random() < 0.7:
        conversation += [small_talk(rng) for _ in range(rng.choices([0, 1, 2], [60, 30, 10])[0])]
        conversation.append(Turn(expand(rng, rng.choice(NAMING[ask]), slots), right, facts))
    return conversation


def stranger(rng: random.Random) -> Conversation:
    """The user asks for a name that they have not given."""
    who = rng.choice(NAMING["who"][0].split("|"))
    ask, answer = ("ask", "not told") if rng.random() < 0.6 else ("ask of", "not told of")
    question = expand(rng, rng.choice(NAMING[ask]), {"who": who})
    return [Turn(question, expand(rng, rng.choice(NAMING[answer]), {"who": who}), {"declines": "yes"})]


def chat(rng: random.Random, holdout: bool = False) -> Conversation:
    chance = rng.random()
    if chance < 0.2:
        return acquaintance(rng)
    if chance < 0.24:
        return stranger(rng)
    return [small_talk(rng) for _ in range(rng.choices([1, 2, 3], [75, 18, 7])[0])]
