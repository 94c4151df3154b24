"""The requests of a benchmark: prompts of random tokens, each with a number of output tokens."""

import random
from collections.abc import Collection
from dataclasses import dataclass

BYTE_TOKENS = 256  # the first ids of a vocabulary are single bytes, which text rarely contains


@dataclass(frozen=True, slots=True)
class BenchRequest:
    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of requests, and the inclusive limits of their lengths in tokens."""

    num_seqs: int
    min_input_len: int
    max_input_len: int
    min_output_len: int
    max_output_len: int


def random_requests(
    sizes: Sizes, vocabulary: int, end_tokens: Collection[int], seed: int
) -> list[BenchRequest]:
    """Deterministic: equal arguments give equal requests on every machine."""
    numbers = random.Random(seed)
    first = BYTE_TOKENS if vocabulary > 2 * BYTE_TOKENS else 0
    ids = [token for token in range(first, vocabulary) if token not in end_tokens]
    requests = []
    for _ in range(sizes.num_seqs):
        length = numbers.randint(sizes.min_input_len, sizes.max_input_len)
        output = numbers.randint(sizes.min_output_len, sizes.max_output_len)
        requests.append(BenchRequest(tuple(numbers.choices(ids, k=length)), output))
    return requests
