"""The repetition penalty, as a function of logits and as part of a generation."""

import mlx.core as mx
import pytest

from tiny_llm.generate import stream_generate
from tiny_llm.sampling.processors import make_repetition_penalty

from ..support.generation.byte_text import VOCABULARY, ByteTokenizer
from ..support.generation.fake_models import CachedFake, FullContextFake
from ..support.refusal import refused


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_tokens_of_either_sign_become_less_probable(dtype):
    """Once, even if they occur several times; the array of the caller does not change."""
    logits = mx.array([[2.0, -2.0, 2.0, -2.0, 0.0]] * 2, dtype=dtype)
    result = make_repetition_penalty(2.0)(mx.array([0, 1, 1, 4, 0]), logits)
    assert result.tolist() == [[1.0, -4.0, 2.0, -2.0, 0.0]] * 2
    assert result.dtype == dtype
    assert logits.tolist() == [[2.0, -2.0, 2.0, -2.0, 0.0]] * 2


def test_a_penalty_of_one_changes_nothing_and_a_smaller_one_favours_repetition():
    logits = mx.array([[2.0, -2.0, 1.0]])
    assert make_repetition_penalty(1.0)(mx.array([0, 1]), logits).tolist() == logits.tolist()
    assert make_repetition_penalty(0.5)(mx.array([0, 1]), logits).tolist() == [[4.0, -1.0, 1.0]]


@pytest.mark.parametrize("penalty", [0, -1, float("nan"), float("inf")])
def test_invalid_penalties_are_refused(penalty):
    with refused("penalty", function="make_repetition_penalty"):
        make_repetition_penalty(penalty)


@pytest.mark.parametrize("fake", [FullContextFake, CachedFake])
def test_a_generation_penalises_prompt_and_answer(fake):
    """A model with the constant order a > b > c > d gives each once, without those of the prompt."""
    scores = [0.0] * VOCABULARY
    for token, score in zip(b"abcd", (9.0, 8.5, 8.0, 7.5), strict=True):
        scores[token] = score
    model = fake(lambda context: scores)
    penalty = make_repetition_penalty(1.5)
    generation = stream_generate(model, ByteTokenizer(), "xb", processors=[penalty], max_tokens=4)
    assert "".join(generation) == "acda"
    assert "".join(stream_generate(model, ByteTokenizer(), "xb", max_tokens=4)) == "aaaa"
