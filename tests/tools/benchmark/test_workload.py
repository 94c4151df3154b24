"""Prompts and arrivals of `bench serve`."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import pytest

from tiny_llm.loading import load_tokenizer
from tiny_llm_tools.benchmark.serving.workload import NoWords, Words, Workload, arrivals, requests


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer("tiny")


def test_prompts_survive_re_tokenization(tokenizer: Any) -> None:
    words = Words(tokenizer)
    workload = Workload(20, 50, 4)
    as_ids, as_text = (requests(workload, words, text, seed=3) for text in (False, True))
    for ids, text in zip(as_ids, as_text, strict=True):
        assert tokenizer.encode(text.prompt, add_special_tokens=False) == ids.prompt
        assert len(ids.prompt) == ids.prompt_tokens == text.prompt_tokens == 50
    assert len({text.prompt for text in as_text}) == 20


def test_equal_seeds_give_equal_requests_and_parts_share_lengths_and_prefix(tokenizer: Any) -> None:
    words = Words(tokenizer)
    workload = Workload(8, 20, 10, range_ratio=0.5, prefix_len=12)
    first = requests(workload, words, False, seed=1, part="a")
    assert first == requests(workload, Words(tokenizer), False, seed=1, part="a")
    other = requests(workload, words, False, seed=1, part="b")
    sizes = [(len(request.prompt), request.output_tokens) for request in first]
    assert sizes == [(len(request.prompt), request.output_tokens) for request in other]
    assert len({tuple(request.prompt[:12]) for request in first + other}) == 1
    assert not {tuple(request.prompt[12:]) for request in first} & {tuple(r.prompt[12:]) for r in other}
    assert first != requests(workload, words, False, seed=2, part="a")


def test_lengths_are_within_the_range_and_reach_its_ends(tokenizer: Any) -> None:
    workload = Workload(400, 10, 4, range_ratio=0.25, prefix_len=5)
    found = requests(workload, Words(tokenizer), False, seed=0)
    assert {request.prompt_tokens for request in found} == set(range(5 + 7, 5 + 13 + 1))
    assert {request.output_tokens for request in found} == {3, 4, 5}
    assert workload.longest == 5 + 13 + 5
    exact = requests(Workload(5, 10, 4), Words(tokenizer), False, seed=0)
    assert {(request.prompt_tokens, request.output_tokens) for request in exact} == {(10, 4)}


def test_a_tokenizer_without_words_is_an_error() -> None:
    class Bytes:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0}

        def decode(self, ids: list[int]) -> str:
            return "a" * len(ids)

    with pytest.raises(NoWords, match="no tokens that are words"):
        requests(Workload(1, 1, 1), Words(Bytes()), False, seed=0)


def test_arrivals_follow_from_the_seed() -> None:
    first = arrivals(50, rate=4.0, burstiness=1.0, seed=7)
    assert first == arrivals(50, rate=4.0, burstiness=1.0, seed=7)
    assert first != arrivals(50, rate=4.0, burstiness=1.0, seed=8)
    assert first[0] == 0
    assert first == sorted(first)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_burstiness(burstiness: float) -> None:
    """The standard deviation of a gamma distribution is its mean over the root of its shape."""
    gaps = [after - before for before, after in pairwise(arrivals(20_001, 5.0, burstiness, seed=0))]
    assert fmean(gaps) == pytest.approx(0.2, rel=0.05)
    assert pstdev(gaps) == pytest.approx(0.2 / math.sqrt(burstiness), rel=0.05)


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert arrivals(3, math.inf, 1.0, seed=0) == [0.0, 0.0, 0.0]
