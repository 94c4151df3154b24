"""Greetings and small talk: what a polite little model says about itself and the day."""

import random

from training.conversation import Conversation, Turn
from training.lexicon import NAMES
from training.template import expand
from training.text import blocks

SMALL_TALK = blocks("small_talk")
MY_NAME = "[My name is {name}|I am {name}|Hello, I am {name}|Hi, my name is {name}|You can call me {name}|I'm {name}][.|!|]"
WELCOME = (
    "[Hello|Nice to meet you|Hi], {name}! [I am tiny.|I am tiny. How can I help you?|How can I help you?]"
)
WHO_AM_I = "[What is my name?|Do you know my name?|Who am I?|What am I called?|Do you remember my name?|What's my name?]"


def small_talk(rng: random.Random) -> Turn:
    talk = rng.choice(SMALL_TALK)
    return Turn(expand(rng, talk["ask"]), expand(rng, talk["answer"]), {"reply": talk["answer"]})


def acquaintance(rng: random.Random) -> Conversation:
    """Somebody tells a name, and may ask for it later."""
    name = {"name": rng.choice(NAMES)}
    conversation = [Turn(expand(rng, MY_NAME, name), expand(rng, WELCOME, name), {"contains": name["name"]})]
    if rng.random() < 0.5:
        conversation += [small_talk(rng)] if rng.random() < 0.4 else []
        conversation.append(
            Turn(expand(rng, WHO_AM_I), "Your name is {name}.".format(**name), {"contains": name["name"]})
        )
    return conversation


def chat(rng: random.Random, holdout: bool = False) -> Conversation:
    if rng.random() < 0.15:
        return acquaintance(rng)
    return [small_talk(rng) for _ in range(rng.choices([1, 2, 3], [75, 18, 7])[0])]
