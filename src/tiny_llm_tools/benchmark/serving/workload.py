"""What is asked, and when: random prompts that survive re-tokenization, and arrivals of a random process."""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .client import ServeRequest

# A token that is a space and letters. Byte-level tokenizers split a text before each such word, so a sequence
# of them is encoded into the same tokens again.
WORD = re.compile(r" [A-Za-z]+")
MAX_TRIES = 100_000  # draws without a word


class NoWords(Exception):
    """The tokenizer has no tokens that survive re-tokenization."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Numbers of requests and tokens. Lengths are between 1 - range_ratio and 1 + range_ratio of these, and
    every prompt begins with the same `prefix_len` tokens."""

    num_prompts: int
    input_len: int
    output_len: int
    range_ratio: float = 0.0
    prefix_len: int = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and the longest answer."""
        return self.prefix_len + sum(self._limits(length)[1] for length in (self.input_len, self.output_len))

    def lengths(self, numbers: random.Random) -> Iterator[tuple[int, int]]:
        """Tokens of each prompt, without the prefix, and of its answer."""
        inputs, outputs = self._limits(self.input_len), self._limits(self.output_len)
        for _ in range(self.num_prompts):
            yield numbers.randint(*inputs), numbers.randint(*outputs)

    def _limits(self, length: int) -> tuple[int, int]:
        low = math.floor(length * (1 - self.range_ratio))
        return max(1, low), math.ceil(length * (1 + self.range_ratio))


class Words:
    """Draws tokens of which each is a word."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._ids = sorted(set(tokenizer.get_vocab().values()))
        self._is_word: dict[int, bool] = {}

    def draw(self, count: int, numbers: random.Random) -> list[int]:
        drawn: list[int] = []
        misses = 0
        while len(drawn) < count:
            token = numbers.choice(self._ids)
            if self._check(token):
                drawn.append(token)
                misses = 0
            elif (misses := misses + 1) > MAX_TRIES:
                raise NoWords("the tokenizer has no tokens that are words")
        return drawn

    def text(self, ids: list[int]) -> str:
        """The text of drawn tokens, which is encoded into them again."""
        text: str = self._tokenizer.decode(ids)
        if self._tokenizer.encode(text, add_special_tokens=False) != ids:
            raise NoWords("the tokenizer does not encode the text of its tokens into these tokens")
        return text

    def _check(self, token: int) -> bool:
        if token not in self._is_word:
            text = self._tokenizer.decode([token])
            self._is_word[token] = WORD.fullmatch(text) is not None and self._tokenizer.encode(
                text, add_special_tokens=False
            ) == [token]
        return self._is_word[token]


def requests(
    workload: Workload, words: Words, as_text: bool, seed: int, part: str = ""
) -> list[ServeRequest]:
    """Prompts as text or as token ids. Equal arguments give equal requests; another `part` has other prompts
    of the same lengths, so that a server has none of them in a cache, and the same prefix."""
    prefix = words.draw(workload.prefix_len, random.Random(f"{seed} prefix"))
    tokens = random.Random(f"{seed} tokens {part}")
    found = []
    for length, output in workload.lengths(random.Random(f"{seed} lengths")):
        ids = prefix + words.draw(length, tokens)
        prompt = words.text(ids) if as_text else ids
        found.append(ServeRequest(prompt, len(ids), output))
    return found


def arrivals(count: int, rate: float, burstiness: float, seed: int) -> list[float]:
    """Seconds from the start to each request, the first at 0.

    Gaps have a gamma distribution of mean 1 / rate: a burstiness of 1 is a Poisson process, less has more
    bursts. An infinite rate sends all at once.
    """
    if math.isinf(rate):
        return [0.0] * count
    numbers, now, found = random.Random(f"{seed} arrivals"), 0.0, []
    for _ in range(count):
        found.append(now)
        now += numbers.gammavariate(burstiness, 1 / (rate * burstiness))
    return found
