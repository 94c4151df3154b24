"""The mixture of the kinds of conversation: their shares, and what is held out of training."""

import random
from collections.abc import Callable

from training.corpus.conversation import Conversation, system_prompt
from training.corpus.disorder import disorder, polite
from training.corpus.split import held_out, normal
from training.evaluation.held_out import forbidden
from training.kinds.about_tiny_llm import FACTS, about_tiny_llm
from training.kinds.arithmetic import arithmetic
from training.kinds.beyond_arithmetic import beyond_arithmetic
from training.kinds.chat import SMALL_TALK, chat
from training.kinds.long_input import long_input
from training.kinds.out_of_domain import out_of_domain
from training.kinds.stories.requests import story
from training.kinds.unknown import unknown
from training.kinds.word_tasks import word_task
from training.language.template import plainest

# generator | share of the conversations | held out by question (the others by subject or by pair of numbers)
KINDS: dict[str, tuple[Callable[..., Conversation], float, bool]] = {
    "story": (story, 0.16, False),
    "arithmetic": (arithmetic, 0.26, False),
    "beyond": (beyond_arithmetic, 0.12, True),
    "about": (about_tiny_llm, 0.125, True),
    "unknown": (unknown, 0.05, True),
    "words": (word_task, 0.08, True),
    "chat": (chat, 0.11, True),
    "other": (out_of_domain, 0.085, True),
    "long": (long_input, 0.010, True),
}
LONG_CHAT_SHARE = 0.02
IN_A_LONG_CHAT = {
    "story": 2,
    "arithmetic": 3,
    "beyond": 2,
    "about": 2,
    "unknown": 1,
    "words": 2,
    "chat": 2,
    "other": 2,
}
ALWAYS_TRAINED = {normal(plainest(entry["ask"])) for entry in (*SMALL_TALK, *FACTS)}


def question_held_out(question: str) -> bool:
    """Wordings of one or two words are never held out, because the model could not infer their meaning."""
    words = normal(question)
    return words.count(" ") > 1 and words not in ALWAYS_TRAINED and held_out("question", words)


def fits(conversation: Conversation, holdout: bool) -> bool:
    held = [question_held_out(turn.user) for turn in conversation]
    return held[0] if holdout else not any(held)


def by_hand(conversation: Conversation) -> bool:
    """Whether it contains one of the prompts written by hand for the evaluation."""
    return any(normal(turn.user) in forbidden() for turn in conversation)


def of_kind(rng: random.Random, kind: str, holdout: bool) -> Conversation:
    generate, _, split_by_question = KINDS[kind]
    while True:
        conversation = generate(rng, holdout)
        if (not split_by_question or fits(conversation, holdout)) and not by_hand(conversation):
            return conversation


def conversation(rng: random.Random, holdout: bool = False) -> tuple[str, Conversation]:
    """One conversation and its kind; a long chat joins several conversations."""
    kinds, shares = list(KINDS), [share for _, share, _ in KINDS.values()]
    if rng.random() < LONG_CHAT_SHARE:
        size = rng.randint(2, 9) if rng.random() < 0.85 else rng.randint(10, 30)
        parts = rng.choices(list(IN_A_LONG_CHAT), list(IN_A_LONG_CHAT.values()), k=size)
        return "long chat", [turn for kind in parts for turn in of_kind(rng, kind, holdout)]
    kind = rng.choices(kinds, shares)[0]
    return kind, of_kind(rng, kind, holdout)


def messages(rng: random.Random, turns: Conversation) -> list[dict[str, str]]:
    """The conversation as chat messages, sometimes with a system prompt and with disorder."""
    system = system_prompt(rng)
    result = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        question = turn.user if turn.as_is else disorder(rng, polite(rng, turn.user))
        if normal(question) in forbidden():
            question = turn.user
        result += [{"role": "user", "content": question}, {"role": "assistant", "content": turn.assistant}]
    return result
