"""The mixture: which kinds of conversation there are, how often each comes, and what is kept out of training."""

import random
from collections.abc import Callable

from training.about_tiny_llm import FACTS, about_tiny_llm
from training.arithmetic import arithmetic
from training.chat import SMALL_TALK, chat
from training.conversation import Conversation, disorder, polite, system_prompt
from training.out_of_domain import out_of_domain
from training.split import held_out, normal
from training.stories.requests import story
from training.template import plainest
from training.word_tasks import word_task

# generator | share of the conversations | split by question (the others split by subject and by number pair)
KINDS: dict[str, tuple[Callable[..., Conversation], float, bool]] = {
    "story": (story, 0.30, False),
    "arithmetic": (arithmetic, 0.32, False),
    "about": (about_tiny_llm, 0.15, True),
    "words": (word_task, 0.08, True),
    "chat": (chat, 0.07, True),
    "other": (out_of_domain, 0.08, True),
}
LONG_CHAT_SHARE = 0.02
ALWAYS_TRAINED = {normal(plainest(entry["ask"])) for entry in (*SMALL_TALK, *FACTS)}


def question_held_out(question: str) -> bool:
    return normal(question) not in ALWAYS_TRAINED and held_out("question", normal(question))


def fits(conversation: Conversation, holdout: bool) -> bool:
    held = [question_held_out(turn.user) for turn in conversation]
    return held[0] if holdout else not any(held)


def of_kind(rng: random.Random, kind: str, holdout: bool) -> Conversation:
    generate, _, split_by_question = KINDS[kind]
    while True:
        conversation = generate(rng, holdout)
        if not split_by_question or fits(conversation, holdout):
            return conversation


def conversation(rng: random.Random, holdout: bool = False) -> tuple[str, Conversation]:
    """One conversation and its kind; a long chat joins several of them, as people do when they go on talking."""
    kinds, shares = list(KINDS), [share for _, share, _ in KINDS.values()]
    if rng.random() < LONG_CHAT_SHARE:
        parts = rng.choices(kinds, [0.2, 0.2, 0.2, 0.1, 0.2, 0.1], k=rng.randint(2, 9))
        return "long chat", [turn for kind in parts for turn in of_kind(rng, kind, holdout)]
    kind = rng.choices(kinds, shares)[0]
    return kind, of_kind(rng, kind, holdout)


def messages(rng: random.Random, turns: Conversation) -> list[dict[str, str]]:
    """The conversation as chat messages, with a system prompt and the disorder of real messages now and then."""
    system = system_prompt(rng)
    result = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        result += [
            {"role": "user", "content": disorder(rng, polite(rng, turn.user))},
            {"role": "assistant", "content": turn.assistant},
        ]
    return result
