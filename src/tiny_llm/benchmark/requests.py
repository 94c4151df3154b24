"""What everybody is asked: prompts of random tokens, and how many tokens each answer has."""

import random
from collections.abc import Collection
from dataclasses import dataclass

BYTES = 256  # the first tokens of a vocabulary stand for single bytes; text hardly has them


@dataclass(frozen=True, slots=True)
class Request:
    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many requests, and the limits, inclusive, between which their lengths are drawn."""

    num_seqs: int
    min_input_len: int
    max_input_len: int
    min_output_len: int
    max_output_len: int


def random_requests(sizes: Sizes, vocabulary: int, end_tokens: Collection[int], seed: int) -> list[Request]:
    """The same ones for the same arguments, on every machine."""
    numbers = random.Random(seed)
    first = BYTES if vocabulary > 2 * BYTES else 0
    ids = [token for token in range(first, vocabulary) if token not in end_tokens]
    requests = []
    for _ in range(sizes.num_seqs):
        length = numbers.randint(sizes.min_input_len, sizes.max_input_len)
        output = numbers.randint(sizes.min_output_len, sizes.max_output_len)
        requests.append(Request(tuple(numbers.choices(ids, k=length)), output))
    return requests
