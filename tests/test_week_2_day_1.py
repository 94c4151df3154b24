"""Week 2, day 1: keys and values are calculated once and kept."""

import itertools
from copy import copy

import mlx.core as mx
import numpy as np
import pytest

from .support.cases import normal
from .support.generation.byte_text import AsciiTokenizer, ByteTokenizer, as_text
from .support.generation.fake_models import CachedFake, FullContextFake
from .support.generation.rules import failing_after, greedy, random_rule, scripted
from .support.models import decoder
from .support.models.checkpoints import checkpoint, tokens
from .support.models.layer_arguments import attention_arguments, block_arguments, one_layer
from .support.models.logits import assert_logits
from .support.refusal import refused
from .support.tolerance import to_float64
from .tiny_llm_base import (
    Qwen2ModelWeek1,
    Qwen2ModelWeek2,
    TinyKvCache,
    TinyKvFullCache,
    qwen2_week2,
    simple_generate,
    simple_generate_with_kv_cache,
)
from .utils import assert_layer_close, in_each_precision, on_each_device


@on_each_device
@in_each_precision
def test_task_1_full_cache_returns_all_tokens(stream, precision):
    """In order, whatever the pieces, with the number of tokens and the mask as it came."""
    key, value = normal(2, 3, 600, 8, dtype=precision, seed=1), normal(2, 3, 600, 8, dtype=precision, seed=2)
    cache = TinyKvFullCache()
    assert isinstance(cache, TinyKvCache)
    assert (cache.key_values, cache.offset) == (None, 0)
    start = 0
    with mx.stream(stream):
        for length in (1, 32, 33, 1, 300, 1, 232):
            part = slice(start, start + length)
            start += length
            keys, values, offset, mask = cache.update_and_fetch(
                key[:, :, part], value[:, :, part], length, "causal"
            )
            assert (offset, cache.offset, mask) == (start, start, "causal")
            assert keys.dtype == values.dtype == precision
            assert mx.array_equal(keys, key[:, :, :start])
            assert mx.array_equal(values, value[:, :, :start])
            assert mx.array_equal(cache.key_values[0], keys)
            assert mx.array_equal(cache.key_values[1], values)


def test_task_1_full_cache_rewinds_the_newest_tokens():
    """rewind(n) drops n tokens; all of them, and the cache is as new and takes other sizes."""
    key, value = normal(1, 2, 40, 8, seed=1), normal(1, 2, 40, 8, seed=2)
    cache = TinyKvFullCache()
    cache.update_and_fetch(key, value)
    cache.rewind(0)
    cache.rewind(7)
    assert mx.array_equal(cache.key_values[0], key[:, :, :33])
    keys, _, offset, _ = cache.update_and_fetch(key[:, :, :2], value[:, :, :2])
    assert offset == 35
    assert mx.array_equal(keys, mx.concatenate([key[:, :, :33], key[:, :, :2]], axis=2))
    cache.rewind(35)
    assert (cache.key_values, cache.offset) == (None, 0)
    cache.update_and_fetch(mx.zeros((3, 1, 5, 4)), mx.zeros((3, 1, 5, 4)))
    cache.release()


@pytest.mark.usefixtures("on_the_cpu")  # MLX on a GPU may copy an array that a running kernel still reads
def test_task_1_full_cache_appends_in_place():
    """A token more is written into the room that is left: 16 MB of keys and values are not copied for it."""
    cache = TinyKvFullCache()
    token = mx.ones((1, 8, 1, 128))
    cache.update_and_fetch(mx.zeros((1, 8, 2000, 128)), mx.zeros((1, 8, 2000, 128)))
    mx.eval(cache.key_values)
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for _ in range(10):
        keys, values, *_ = cache.update_and_fetch(token, token)
        mx.eval(keys[:, :, -1], values[:, :, -1])
        del keys, values
    assert mx.get_peak_memory() - before < 2**20
    assert cache.key_values[0][:, :, 2000:].sum().item() == 10 * 8 * 128


def test_task_1_full_cache_does_not_change_its_copy():
    """A copy shares the arrays until one of the two writes: then each has its own newest token."""
    token = mx.ones((1, 2, 1, 8))
    cache = TinyKvFullCache()
    cache.update_and_fetch(token, token)
    other = copy(cache)
    for each, number in ((cache, 2), (other, 3)):
        each.update_and_fetch(number * token, -number * token)
    for each, number in ((cache, 2), (other, 3)):
        keys, values = each.key_values
        assert keys[0, 0, :, 0].tolist() == [1, number]
        assert values[0, 0, :, 0].tolist() == [1, -number]


def test_task_1_full_cache_refuses_invalid_arguments():
    """Other sizes than before, values of another shape than keys, and a rewind beyond the start."""
    cache = TinyKvFullCache()
    token = mx.ones((1, 2, 1, 8))
    cache.update_and_fetch(token, token)
    for key, value in (
        (token[0], token[0]),
        (token, token[..., :4]),
        (token, token.astype(mx.float16)),
        (token[:, :1], token[:, :1]),
        (token.astype(mx.float16),) * 2,
        (token[:, :, :0],) * 2,
    ):
        with pytest.raises(ValueError, match=r"TinyKvFullCache: .*got"):
            cache.update_and_fetch(key, value)
    for n in (-1, 2):
        with pytest.raises(ValueError, match=f"rewind: got {n}, expected 0 to 1"):
            cache.rewind(n)
    with pytest.raises(NotImplementedError, match="TinyKvFullCache"):
        cache.update_and_fetch_paged(token, token)
    assert cache.offset == 1


@on_each_device
@in_each_precision
@pytest.mark.parametrize("chunk", [1, 33, 70])
def test_task_2_attention_layer_continues_where_its_cache_ends(stream, precision, chunk):
    """Piece by piece, the result is that of the whole sequence at once."""
    model = one_layer()
    x = normal(2, 70, 128, dtype=precision)
    with mx.stream(stream):
        layer = qwen2_week2.Qwen2MultiHeadAttention(**attention_arguments(model, precision, packed=True))
        cache = TinyKvFullCache()
        pieces = [layer(x[:, start : start + chunk], start, cache, "causal") for start in range(0, 70, chunk)]
        expected = decoder.attention(to_float64(x), model.layer.self_attn, model.args)
        assert_layer_close(mx.concatenate(pieces, axis=1), expected, precision)
    assert cache.offset == 70


@pytest.mark.parametrize(
    "offset", [5, [5, 5], mx.array([5, 5]), mx.array(5)], ids=["int", "list", "array", "0-d"]
)
def test_task_2_attention_layer_takes_an_offset_of_any_kind(offset):
    """One number for all rows, or one for each."""
    layer = qwen2_week2.Qwen2MultiHeadAttention(**attention_arguments(one_layer(), packed=True))
    x = normal(2, 8, 128)
    cache, other = TinyKvFullCache(), TinyKvFullCache()
    layer(x[:, :5], 0, cache, "causal")
    layer(x[:, :5], [0, 0], other, "causal")
    assert mx.array_equal(layer(x[:, 5:], 5, cache, "causal"), layer(x[:, 5:], offset, other, "causal"))
    with pytest.raises(ValueError, match="offset: got 3"):
        layer(x, [0, 0, 0], cache, "causal")


def test_task_2_block_continues_where_its_cache_ends():
    """As its attention does."""
    model = one_layer()
    x = normal(1, 40, 128)
    block = qwen2_week2.Qwen2TransformerBlock(**block_arguments(model, packed=True))
    cache = TinyKvFullCache()
    pieces = [block(x[:, :33], 0, cache, "causal"), block(x[:, 33:], 33, cache, "causal")]
    expected = decoder.block(to_float64(x), model.layer, model.args)
    np.testing.assert_allclose(to_float64(mx.concatenate(pieces, axis=1)), expected, rtol=1e-5, atol=1e-5)


@on_each_device
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_task_3_model_prefills_a_prompt(stream, tied):
    """As the model without a cache does; its own caches are one for each layer, and hold the prompt then."""
    weights, inputs = checkpoint(tied=tied), tokens(2, 70)
    with mx.stream(stream):
        model = Qwen2ModelWeek2(weights, dtype=mx.float32)
        cache = model.create_kv_cache()
        assert [type(layer) for layer in cache] == [TinyKvFullCache] * 3
        assert_logits(model(inputs, 0, cache), decoder.logits(inputs, weights))
        assert [layer.offset for layer in cache] == [70] * 3
        half = Qwen2ModelWeek2(weights)
        assert half.precision == mx.float16
        logits = half(inputs, 0, half.create_kv_cache())
        assert_logits(logits, Qwen2ModelWeek1(weights)(inputs), tolerance=2e-2)


def test_task_3_model_refuses_caches_of_another_model():
    """One for each layer."""
    model = Qwen2ModelWeek2(checkpoint())
    with pytest.raises(ValueError, match="cache: got 2, expected one for each of 3 layers"):
        model(tokens(1, 5), 0, model.create_kv_cache()[:2])


@on_each_device
def test_task_4_model_decodes_token_by_token(stream):
    """A prompt, then one token at a time: each step gives the last row of the whole context."""
    weights, inputs = checkpoint(), tokens(1, 45)
    expected = decoder.logits(inputs, weights)
    with mx.stream(stream):
        model = Qwen2ModelWeek2(weights, dtype=mx.float32)
        cache = model.create_kv_cache()
        assert_logits(model(inputs[:, :33], 0, cache), expected[:, :33])
        for position in range(33, 45):
            step = model(inputs[:, position : position + 1], position, cache)
            assert_logits(step, expected[:, position : position + 1])


@pytest.mark.usefixtures("on_the_cpu")  # chunks are longer on a GPU
@pytest.mark.parametrize("length", [1, 5, 300, 512, 513, 1100])
def test_task_4_simple_generate_with_kv_cache_equals_simple_generate(length, capsys):
    """The prompt first, in chunks if it is long, then one token a step; and nothing is printed."""
    rule = random_rule(1)
    prompt = ("Hello, world! " * 80)[:length]
    model = CachedFake(rule, context=length + 40)
    want = as_text(greedy(rule, prompt, limit=40))
    assert simple_generate_with_kv_cache(model, ByteTokenizer(), prompt) == want
    widths = [width for _, width in model.calls]
    prompt_is_read = list(itertools.accumulate(widths)).index(length)
    assert max(widths) <= 512
    assert set(widths[prompt_is_read + 1 :]) == {1}
    assert capsys.readouterr().out == ""


def test_task_4_simple_generate_with_kv_cache_computes_each_token_once():
    """Prompt and answer; at most one step is taken ahead of the end token."""
    model = CachedFake(scripted({"hello": list(b"abc")}))
    assert simple_generate_with_kv_cache(model, ByteTokenizer(), "hello") == "abc"
    assert model.calls[:4] == [(1, 5), (1, 1), (1, 1), (1, 1)]
    assert len(model.calls) <= 5


def test_task_4_simple_generate_with_kv_cache_takes_a_sampler():
    """The same as without a cache."""
    rule = random_rule(2)

    def worst(logprobs):
        return mx.argmin(logprobs[:, :256], axis=-1)

    want = simple_generate(FullContextFake(rule, context=40), ByteTokenizer(), "abc", worst)
    model = CachedFake(rule, context=40)
    assert simple_generate_with_kv_cache(model, ByteTokenizer(), "abc", sampler=worst) == want != ""


def test_task_4_simple_generate_with_kv_cache_releases_its_caches():
    """Every layer, at the end of the answer and when the model fails in the middle of it."""
    model = CachedFake(scripted({"hi": list(b"abc")}))
    simple_generate_with_kv_cache(model, ByteTokenizer(), "hi")
    failing = CachedFake(failing_after(scripted({"hi": list(b"abc")}), 4))
    with pytest.raises(ZeroDivisionError):
        simple_generate_with_kv_cache(failing, ByteTokenizer(), "hi")
    for cache in model.caches + failing.caches:
        assert cache.released == 1
    assert len(failing.caches) == failing.num_hidden_layers


@pytest.mark.parametrize("prompt", ["", "x" * 8], ids=["empty", "long"])
def test_task_4_simple_generate_with_kv_cache_refuses_a_prompt_without_an_answer(prompt):
    """Before a cache is made."""
    model = CachedFake(random_rule(), context=8)
    with refused("prompt", function="simple_generate_with_kv_cache"):
        simple_generate_with_kv_cache(model, ByteTokenizer(), prompt)
    assert model.caches == []


def test_task_4_simple_generate_with_kv_cache_of_a_whole_model_equals_simple_generate(capsys):
    """The whole model: with a cache, in week 2, and reading everything again, in week 1."""
    weights = checkpoint(max_position_embeddings=60)
    with mx.stream(mx.cpu):
        again = simple_generate(Qwen2ModelWeek1(weights, dtype=mx.float32), AsciiTokenizer(), "Hello", None)
        kept = Qwen2ModelWeek2(weights, dtype=mx.float32)
        assert simple_generate_with_kv_cache(kept, AsciiTokenizer(), "Hello") == again != ""
