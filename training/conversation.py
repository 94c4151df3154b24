"""A conversation as the model sees it, and the small disorder that real people's messages have."""

import random
from dataclasses import dataclass, field

SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are tiny, a small language model.",
    "Answer in simple English.",
    "You are a helpful AI assistant. Answer briefly.",
    "Be polite and short.",
]


@dataclass
class Turn:
    """One question and its answer; `facts` is what a checker may use, the model never sees it."""

    user: str
    assistant: str
    facts: dict[str, str] = field(default_factory=dict)


Conversation = list[Turn]


def disorder(rng: random.Random, text: str) -> str:
    """Drop a capital, a full stop or a question mark now and then, as people do."""
    chance = rng.random()
    if chance < 0.10:
        text = text[:1].lower() + text[1:]
    elif chance < 0.15:
        text = text.lower()
    if rng.random() < 0.12:
        text = text.rstrip(".?!")
    return text


def polite(rng: random.Random, text: str) -> str:
    """Put a greeting in front now and then."""
    if rng.random() < 0.03:
        return rng.choice(["Hi! ", "Hello! ", "Hello, ", "Hey, ", "Hi tiny, ", "Please: ", "Ok. "]) + text
    return text


def system_prompt(rng: random.Random) -> str | None:
    return rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.4 else None
