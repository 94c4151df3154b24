"""Rows of tokens for training: one conversation per row, in a few fixed lengths, made in worker processes.

A step takes a fixed number of rows of every length. So the compiled step has one shape, every step has the whole
mixture, and a row is exactly what the model sees when it answers: nothing before it, positions from zero.
"""

import multiprocessing
import random
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from training.corpus.mixture import conversation, messages
from training.tokenizer import END, START

LENGTHS = (32, 48, 64, 96, 192, 384, 1024, 2047)
CONVERSATIONS_PER_SHARD = 3000
Rows = dict[
    int, tuple[np.ndarray, np.ndarray]
]  # length -> tokens (n, length + 1) uint16, learned (n, length + 1) bool


class Encoder:
    """Turns messages into token ids, and marks those to learn: the assistant's messages and their end mark."""

    def __init__(self, file: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(file))
        self.end = self.tokenizer.token_to_id(END)
        self.head = {role: self.ids(f"{START}{role}\n") for role in ("system", "user", "assistant")}
        self.tail = self.ids("\n")

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def __call__(self, chat: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
        tokens: list[int] = []
        learned: list[bool] = []
        for message in chat:
            head, body = self.head[message["role"]], [*self.ids(message["content"]), self.end]
            tokens += head + body + self.tail
            learned += (
                [False] * len(head) + [message["role"] == "assistant"] * len(body) + [False] * len(self.tail)
            )
        return tokens[: -len(self.tail)], learned[: -len(self.tail)]

    def prompt(self, chat: list[dict[str, str]]) -> list[int]:
        """The conversation so far, and the mark that begins an answer."""
        return [*self(chat)[0], *self.tail, *self.head["assistant"]]


@lru_cache(maxsize=1)
def encoder(file: Path) -> Encoder:
    return Encoder(file)


def in_rows(encoded: list[tuple[list[int], list[bool]]]) -> Rows:
    """Pad every conversation to the next length; those longer than the context are left out."""
    rows: Rows = {}
    for shorter, length in zip((0, *LENGTHS), LENGTHS, strict=False):
        fitting = [pair for pair in encoded if shorter + 1 < len(pair[0]) <= length + 1]
        tokens = np.zeros((len(fitting), length + 1), np.uint16)
        learned = np.zeros((len(fitting), length + 1), bool)
        for i, (ids, marks) in enumerate(fitting):
            size = min(len(ids), length + 1)
            tokens[i, :size], learned[i, :size] = ids[:size], marks[:size]
        rows[length] = tokens, learned
    return rows


def shard(job: tuple[Path, int, int, int]) -> Rows:
    """The rows of one shard; its content depends only on (seed, index)."""
    file, seed, index, size = job
    rng = random.Random(f"{seed}/{index}")
    return in_rows([encoder(file)(messages(rng, conversation(rng)[1])) for _ in range(size)])


def shards(file: Path, seed: int, workers: int) -> Iterator[Rows]:
    """An endless sequence of shards, made ahead of time by worker processes."""
    jobs = ((file, seed, index, CONVERSATIONS_PER_SHARD) for index in count())
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        ahead = deque(pool.apply_async(shard, (job,)) for job in islice(jobs, 4 * workers))
        while True:
            yield ahead.popleft().get()
            ahead.append(pool.apply_async(shard, (next(jobs),)))


def rows_per_step(sample: Rows, tokens_per_step: int) -> dict[int, int]:
    """How many rows of each length make up a step, in the proportions of the sample."""
    total = sum(tokens.shape[0] * length for length, (tokens, _) in sample.items())
    return {
        length: max(1, round(tokens.shape[0] * tokens_per_step / total))
        for length, (tokens, _) in sample.items()
    }


def steps(source: Iterator[Rows], per_step: dict[int, int]) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Batches of constant shape; of too frequent lengths, the oldest rows are dropped."""
    waiting = {length: deque(maxlen=64 * rows) for length, rows in per_step.items()}
    while True:
        while any(len(waiting[length]) < rows for length, rows in per_step.items()):
            for length, (tokens, learned) in next(source).items():
                waiting[length].extend(zip(tokens, learned, strict=True))
        batch = []
        for length, rows in per_step.items():
            taken = [waiting[length].popleft() for _ in range(rows)]
            batch.append((np.stack([t for t, _ in taken]), np.stack([m for _, m in taken])))
        yield batch
