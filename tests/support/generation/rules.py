"""Rules that a fake model follows: from its context, a tuple of tokens, to the scores of the next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .byte_text import END, VOCABULARY

Rule = Callable[[tuple[int, ...]], np.ndarray]


def scripted(answers: Mapping[str, list[int]]) -> Rule:
    """Each prompt is followed by its answer and END; every other context by token 0."""
    prompts = {tuple(prompt.encode()): [*answer, END] for prompt, answer in answers.items()}

    def rule(context: tuple[int, ...]) -> np.ndarray:
        scores = np.zeros(VOCABULARY, np.float32)
        for prompt, answer in prompts.items():
            said = list(context[len(prompt) :])
            if context[: len(prompt)] == prompt and said == answer[: len(said)] != answer:
                scores[answer[len(said)]] = 9
        return scores

    return rule


def random_rule(
    seed: int = 0, *, width: int = VOCABULARY, like: Rule | None = None, noise: float = 1.0
) -> Rule:
    """Random scores, a function of the context; with `like`, noisy copies of the scores of another rule."""

    def rule(context: tuple[int, ...]) -> np.ndarray:
        random = np.random.default_rng([seed, *context])
        scores = noise * random.standard_normal(width).astype(np.float32)
        if like is not None:
            scores += like(context)[:width]
        elif random.random() < 1 / 40:
            scores[END] = 9
        scores[END + 1 :] = -np.inf
        return scores

    return rule


def failing_after(rule: Rule, length: int) -> Rule:
    """The same rule for contexts of at most `length` tokens, a ZeroDivisionError for longer ones."""

    def failing(context: tuple[int, ...]) -> np.ndarray:
        if len(context) > length:
            raise ZeroDivisionError("a fault in the model")
        return rule(context)

    return failing


def greedy(rule: Rule, prompt: str, limit: int | None = None) -> list[int]:
    """The tokens that the rule ranks highest after a prompt, one by one, up to and without END."""
    context = list(prompt.encode())
    start = len(context)
    while limit is None or len(context) < start + limit:
        token = int(rule(tuple(context)).argmax())
        if token == END:
            break
        context.append(token)
    return context[start:]
