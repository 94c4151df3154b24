"""What `bench scaling` simulates and plays: requests of conversations, and the steps of an engine."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benches.names import ONE_STREAM, TINY_LLM
from tiny_llm.engine.sizes import STEP_TOKENS
from tiny_llm.scheduler.budget import FEWEST_TOKENS, LONGEST_STEP, SIZES

DECODE = re.compile(r"(?P<model>.+) (?P<streams>\d+) x decode after (?P<prompt>\d+) tokens")
OUTPUT = 64  # tokens of the answers of those rows


@dataclass(frozen=True)
class StepTimes:
    """Seconds of steps with so many answers alone, and with so many tokens of prompts alone."""

    decode: Mapping[int, float]
    prefill: Mapping[int, float]

    def step(self, answers: int, prompts: int) -> float:
        """Both together read the weights once, as a step with one answer does."""
        once = between(self.decode, 1)
        return between(self.decode, max(answers, 1)) + max(0.0, between(self.prefill, prompts) - once)

    def prompt_tokens(self, answers: int) -> int:
        """As many tokens of prompts as an engine computes beside so many answers."""
        if answers not in self._prompt_tokens:
            longest = LONGEST_STEP * self.step(answers, 0)
            sizes = (size - answers for size in SIZES if size > answers)
            fitting = [size for size in sizes if self.step(answers, size) <= longest]
            self._prompt_tokens[answers] = max([FEWEST_TOKENS, *fitting]) if answers else STEP_TOKENS
        return self._prompt_tokens[answers]

    @cached_property
    def _prompt_tokens(self) -> dict[int, int]:
        return {}


def between(points: Mapping[int, float], x: int) -> float:
    """On the lines between points, from the origin on, and on the last line beyond them."""
    known = [0, *sorted(points)]
    above = next((each for each in known[1:] if each >= x), known[-1])
    below = known[known.index(above) - 1]
    low = points.get(below, 0.0)
    return low + (points[above] - low) / (above - below) * (x - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests at random times, `rate` a second, each the next turn of one of the conversations.

    A prompt is that of the turn before and `added` tokens; the first one has `first`. After `turns` of them
    the conversation is another one. warm: they have begun before, and replicas have the pages of that.
    """

    rate: float
    requests: int
    conversations: int
    first: int = 300
    added: int = 100
    turns: int = 6
    output: int = 50
    seed: int = 0
    warm: bool = True

    def arrivals(self) -> list[tuple[float, int, int]]:
        """Second, conversation, and turn from 1, in order."""
        numbers = random.Random(self.seed)
        fresh = itertools.count(self.conversations)
        begun = self.turns - 1 if self.warm else 0
        now = [(each, numbers.randint(0, begun)) for each in range(self.conversations)]
        found, second = [], 0.0
        for _ in range(self.requests):
            second += numbers.expovariate(self.rate)
            place = numbers.randrange(len(now))
            conversation, turn = now[place]
            if turn == self.turns:
                conversation, turn = next(fresh), 0
            now[place] = (conversation, turn + 1)
            found.append((second, conversation, turn + 1))
        return found

    def prompt(self, turn: int) -> int:
        """Its tokens; that of turn 0 has none."""
        return self.first + self.added * (turn - 1) if turn else 0


def step_times(record: Mapping[str, Any], model: str) -> StepTimes:
    """Of a record of `bench engine`, with its largest number of threads.

    Its rows have the time of a token: of decoding alone, for some numbers of streams; and of whole answers
    with their prompts, which leaves the time of these.
    """
    most = max(row["threads"] for row in record["rows"])
    rows = {row["row"]: seconds_of(row) for row in record["rows"] if row["threads"] == most}
    decode: dict[int, float] = {}
    prefill = []
    for found in filter(None, map(DECODE.fullmatch, rows)):
        if found["model"] != model:
            continue
        streams, prompt, seconds = int(found["streams"]), int(found["prompt"]), rows[found[0]]
        decode[streams] = streams * seconds[TINY_LLM]
        decode.setdefault(1, seconds[ONE_STREAM])
        whole = f"{model} {streams} x ({prompt} in, {OUTPUT} out)"
        prefill.append((rows[whole][TINY_LLM] - seconds[TINY_LLM]) * OUTPUT / prompt)
    return StepTimes(decode, {STEP_TOKENS: STEP_TOKENS * min(prefill)})


def seconds_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Medians by contestant."""
    return {each["name"]: each["seconds"]["median"] for each in row["contestants"] if each["seconds"]}
