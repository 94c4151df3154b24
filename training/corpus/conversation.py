"""Turns, conversations and system prompts."""

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
    "Answer in one sentence.",
    "Be honest. Say so when you do not know.",
]


@dataclass
class Turn:
    """One question and its answer. `facts` are for the checker; the model never sees them.

    `as_is`: no disorder in the question, because the answer repeats words of it.
    """

    user: str
    assistant: str
    facts: dict[str, str] = field(default_factory=dict)
    as_is: bool = False


Conversation = list[Turn]


def system_prompt(rng: random.Random) -> str | None:
    return rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.4 else None
