"""Starting a step while the previous one is computed: when it happens, with the same tokens."""

import copy
from itertools import islice

import mlx.core as mx
import pytest

from tiny_llm.generation.sequence import SequenceState
from tiny_llm.generation.tokens import TokenSampler, cached_tokens
from tiny_llm.models import dispatch_model
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool
from tiny_llm.runtime.extension import load_extension
from tiny_llm.sampler import make_sampler

from ..support.generation.fake_models import CachedFake
from ..support.generation.rules import random_rule
from ..support.models.checkpoints import checkpoint

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def model_of(*, week=2, flash=True, **options):
    weights = checkpoint("qwen2", max_position_embeddings=4096, **options)
    settings = {"enable_flash_attn": flash} if week == 2 else {}
    return dispatch_model("a folder", weights, week, dtype=mx.float32, **settings)


def tokens_of(model, prompt, count, sampler=None):
    return cached_tokens(model, prompt, TokenSampler(prompt, sampler), count, prefill_step=512)


def one_after_the_other(model, prompt, count, sampler=None):
    """The tokens, each evaluated before the graph of the next step is built."""
    sequence, token_sampler = SequenceState(model), TokenSampler(prompt, sampler)
    ids = [token_sampler.sample(sequence.prefill(prompt, 512)).item()]
    while len(ids) < count:
        ids.append(token_sampler.sample(sequence.step(mx.array(ids[-1:]))).item())
    return ids


def some():
    return make_sampler(20.0, None, None, seed=3)


@pytest.mark.parametrize("length", [1, 40, 250, 500])
def test_the_tokens_are_those_of_one_step_after_the_other(length):
    """Caches get full and grow while the previous step is being computed."""
    model, prompt = model_of(), [(7 * i) % 90 for i in range(length)]
    expected = one_after_the_other(model, prompt, 30, some())
    assert len(set(expected)) > 9
    for count in (1, 2, 3, 30):
        assert list(tokens_of(model, prompt, count, some())) == expected[:count]


def test_an_abandoned_answer_does_not_affect_others():
    """Its last step is still under way."""
    model, prompt = model_of(), [1, 2, 3]
    expected = one_after_the_other(model, prompt, 9, some())
    for taken in (1, 2, 5):
        tokens = tokens_of(model, prompt, 9, some())
        assert list(islice(tokens, taken)) == expected[:taken]
        tokens.close()
        assert list(tokens_of(model, prompt, 9, some())) == expected


def test_two_interleaved_answers():
    model = model_of()
    prompts = [[1, 2, 3], list(range(50))]
    expected = [one_after_the_other(model, prompt, 20, some()) for prompt in prompts]
    answers = zip(*(tokens_of(model, prompt, 20, some()) for prompt in prompts), strict=True)
    assert list(answers) == list(zip(*expected, strict=True))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"flash": False}, False),
        ({"bits": None}, False),
        ({"week": 3}, True),
        ({"layers": 40}, True),
        ({"layers": 41}, False),
    ],
    ids=str,
)
def test_which_models_start_a_step_ahead(options, expected):
    """Blocks with a native operation, but not too many: MLX would wait for some of them."""
    sequence = SequenceState(model_of(**options))
    assert not sequence.starts_ahead()
    sequence.prefill(list(range(40)), 512)
    assert not sequence.starts_ahead()
    sequence.step(mx.array([1]))
    assert sequence.starts_ahead() == expected


def test_one_block_without_a_native_operation_prevents_starting_ahead():
    model = model_of()
    sequence = SequenceState(model)
    sequence.step(mx.array([1]))
    assert sequence.starts_ahead()
    model.layers_inner[1].fused = None
    assert not sequence.starts_ahead()


def test_another_kind_of_cache_prevents_starting_ahead():
    sequence = SequenceState(model_of())
    sequence.step(mx.array([1]))
    sequence.cache[2] = TinyKvPagedCache(TinyKvPagedPool(16))
    assert not sequence.starts_ahead()


def test_a_copy_of_the_caches_keeps_its_tokens():
    """A copy and its original write to the same memory, in every combination."""
    model = model_of()
    sequence, other = SequenceState(model), SequenceState(model)
    for ids in ([1, 2, 3], list(range(40))):  # natively, then not
        mx.eval(sequence.step(mx.array(ids)), other.step(mx.array(ids)))
    fork = SequenceState(model)
    fork.cache, fork.offset = [copy.copy(layer) for layer in sequence.cache], sequence.offset
    sequence.rewind(40)
    mx.eval(sequence.step(mx.array([9, 8])))
    assert mx.array_equal(fork.step(mx.array([5])), other.step(mx.array([5])))


class Refusing(CachedFake):
    """A model whose fourth step cannot be started: there is no such memory."""

    def starts_ahead(self, cache):
        return True

    def __call__(self, inputs, offset, cache):
        logits = super().__call__(inputs, offset, cache)
        if len(self.calls) < 4:
            return logits
        large = mx.broadcast_to(mx.zeros(1), (1 << 20, 1 << 28))
        return logits + load_extension().silu_multiply(large, large)[0, 0]


def test_a_token_is_yielded_even_if_the_next_step_fails():
    prompt = [1, 2, 3]
    tokens = tokens_of(Refusing(random_rule()), prompt, 9)
    assert list(islice(tokens, 3)) == list(tokens_of(CachedFake(random_rule()), prompt, 3))
    with pytest.raises(RuntimeError, match="out of memory"):
        next(tokens)


class Hungry(CachedFake):
    """A model each step of which takes memory, more than the one before."""

    ROOM = 1 << 22  # floats

    def __init__(self, ahead):
        super().__init__(random_rule())
        self.starts_ahead = lambda cache: ahead

    def __call__(self, inputs, offset, cache):
        logits = super().__call__(inputs, offset, cache)
        return logits + mx.zeros(len(self.calls) * self.ROOM).sum()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_is_evaluated_ahead_only_where_the_model_allows_it(ahead):
    """The next step is evaluated before this token is yielded, or only when the next token is requested."""
    prompt, memory = [1, 2, 3], []
    mx.reset_peak_memory()
    for _ in tokens_of(Hungry(ahead), prompt, 6):
        mx.synchronize()
        needed = mx.get_peak_memory() - mx.get_active_memory()
        memory.append(max(0, round(needed / (4 * Hungry.ROOM))))
        mx.reset_peak_memory()
    assert memory[1:] == ([3, 4, 5, 6, 0] if ahead else [2, 3, 4, 5, 6])
