"""Times of tokens: the first contains nothing of the second, and no step runs without giving a token."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.generation.generation import Generation
from tiny_llm.generation.text import TextStream
from tiny_llm.generation.tokens import TokenSampler, cached_tokens
from tiny_llm.sampling.stop import StopStrings
from tiny_llm_tools.benchmark.backends import tiny_llm_backend
from tiny_llm_tools.benchmark.rates import run_once
from tiny_llm_tools.benchmark.requests import BenchRequest

from ..support.generation.byte_text import ByteDetokenizer
from ..support.generation.fake_models import CachedFake, PagedFake
from ..support.generation.rules import scripted

PROMPT = list(b"Hello")


class Slow:
    """A model that takes a second for each call."""

    def __init__(self, model: CachedFake):
        self._model = model
        self.now = 0.0
        self.create_kv_cache = model.create_kv_cache

    def __call__(self, inputs: mx.array, offset: int | list[int], cache: list) -> mx.array:
        self.now += 1
        return self._model(inputs, offset, cache)

    def clock(self) -> float:
        return self.now


@pytest.fixture(params=[CachedFake, PagedFake], ids=["dense", "paged"])
def slow(request) -> Slow:
    return Slow(request.param(scripted({"Hello": list(b"a long answer")})))


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("step", [2, 512])
def test_the_steps_of_an_answer_are_its_tokens(slow, count, step):
    tokens = cached_tokens(slow, PROMPT, TokenSampler(PROMPT), count, prefill_step=step)
    generation = Generation(
        tokens, TextStream(ByteDetokenizer()), frozenset(), StopStrings([]), len(PROMPT), slow.clock
    )
    list(generation)
    found, chunks = generation.statistics, -(-len(PROMPT) // step)
    assert found.generated_tokens == count
    assert found.time_to_first_token == chunks
    assert found.decode_seconds == count - 1


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_measured_request_takes_the_same_steps(slow, count):
    run = run_once(tiny_llm_backend("fake", slow), BenchRequest(tuple(PROMPT), count), slow.clock)
    assert (run.output_tokens, run.first, run.seconds) == (count, 1, count)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_mlx_lm_backend_runs_one_step_per_token(count):
    """mlx-lm's own loop wastes a step, and runs the second one before it yields the first token."""
    from mlx_lm.models import qwen2

    from tiny_llm_tools.benchmark.backends import mlx_lm_backend

    class Counting(qwen2.Model):
        steps = 0

        def __call__(self, inputs, cache=None):
            type(self).steps += inputs.shape[1] == 1
            return super().__call__(inputs, cache)

    model = Counting(
        qwen2.ModelArgs("qwen2", 32, 2, 64, 2, 1e-6, 96, num_key_value_heads=1, tie_word_embeddings=True)
    )
    prompt = tuple(np.random.default_rng(0).integers(0, 96, 7).tolist())
    tokens = mlx_lm_backend("mlx-lm", model).generate(BenchRequest(prompt, count))
    first = next(tokens)
    assert Counting.steps == 1
    answer = [first, *tokens]
    assert Counting.steps == len(answer) == count
    whole = list(prompt)
    for token in answer:
        assert mx.argmax(model(mx.array([whole]))[0, -1]).item() == token
        whole.append(token)
