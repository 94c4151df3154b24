"""A block on pages is one native operation, and its answers are those on dense caches."""

import io
import re

import mlx.core as mx
import pytest

from tiny_llm import dispatch_model
from tiny_llm.course.model import load_model
from tiny_llm.generation.tokens import TokenSampler, cached_tokens
from tiny_llm.kv_cache import BatchingKvCache
from tiny_llm.models import paged_block

from ..support.models.checkpoints import checkpoint, tokens
from ..support.models.logits import TOLERANCE, assert_logits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

each_dtype = pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
LAYERS = 2


def model_of(week, dtype=mx.float32, **options):
    return dispatch_model(
        "a folder", checkpoint(layers=LAYERS, scale_dtype=dtype), week, dtype=dtype, **options
    )


def logits_of_one(model):
    """A prompt over pages, a chunk and a token."""
    inputs, cache = tokens(1, 50), model.create_kv_cache()
    return [
        model(inputs[:, start:stop], start, cache) for start, stop in [(0, 33), (33, 49), (49, 50)]
    ], model.page_pool


def logits_of_a_batch(model):
    """Two requests beside an idle slot, and then without one."""
    lengths = {0: 9, 2: 3, 1: 5}
    batch = [BatchingKvCache(3, 100) for _ in range(LAYERS)]
    results = []
    for slot, length in lengths.items():
        cache = model.create_kv_cache()
        model(tokens(1, length, seed=slot), 0, cache)
        for layer, prefilled in zip(batch, cache, strict=True):
            layer.add_request(prefilled, slot)
        offsets = [0 if each is None else each.offset for each in batch[0].kv_caches]
        logits = model(tokens(3, 2, seed=7), offsets, batch)
        results += [logits[row] for row, each in enumerate(batch[0].kv_caches) if each is not None]
    return results, model.page_pool


@pytest.fixture
def layer_by_layer(monkeypatch):
    """Makes blocks run operation by operation, as where there is no native one, when it is called."""
    return lambda: monkeypatch.setattr(paged_block, "fused_operation", lambda *arguments: None)


@each_dtype
def test_the_native_block_equals_its_layers_bit_by_bit(dtype, layer_by_layer):
    native = model_of(3, dtype, page_size=7)
    actual, pool = logits_of_one(native)
    mx.eval(actual, pool.storage)
    assert all(block.fused is not None for block in native.layers_inner)
    assert pool.key_pages.dtype == dtype
    layer_by_layer()
    expected, other = logits_of_one(model_of(3, dtype, page_size=7))
    assert all(map(mx.array_equal, actual, expected))
    assert all(map(mx.array_equal, pool.storage, other.storage))


def test_a_block_is_nothing_but_its_operation():
    """MLX makes a caller wait when many operations are in flight, also those that change nothing."""
    model = model_of(3)
    cache, x = model.create_kv_cache(), mx.zeros((1, 1, model.hidden_size))
    mx.eval(x, model(tokens(1, 3), 0, cache))
    text = io.StringIO()
    mx.export_to_dot(text, model.layers_inner[0](x, 3, cache[0], "causal"))
    operations = re.findall(r'label ?= ?"(\w+)"', text.getvalue())
    assert operations == ["PackedDecoderBlocks"]


@each_dtype
def test_a_batch_equals_its_layers(dtype, layer_by_layer):
    """Idle slots are no rows of the native block; products of another number of rows round differently."""
    native = model_of(3, dtype, page_size=7)
    actual, pool = logits_of_a_batch(native)
    mx.eval(actual, pool.storage)
    layer_by_layer()
    expected, other = logits_of_a_batch(model_of(3, dtype, page_size=7))
    for logits, wanted in zip(actual, expected, strict=True):
        assert_logits(logits[None], wanted[None], TOLERANCE[dtype])
    assert pool.used_page_ids == other.used_page_ids


@each_dtype
def test_a_prompt_decodes_as_on_dense_caches(dtype):
    paged, dense = model_of(3, dtype, page_size=16), model_of(2, dtype, enable_flash_attn=True)
    actual, _ = logits_of_one(paged)
    inputs, cache = tokens(1, 50), dense.create_kv_cache()
    for logits, (start, stop) in zip(actual, [(0, 33), (33, 49), (49, 50)], strict=True):
        assert_logits(logits, dense(inputs[:, start:stop], start, cache), TOLERANCE[dtype])


def test_positions_that_are_not_those_of_the_cache_run_layer_by_layer():
    model = model_of(3)
    cache = model.create_kv_cache()
    model(tokens(1, 4), 3, cache)
    assert all(block.fused is None for block in model.layers_inner)
    assert [layer.offset for layer in cache] == [4] * LAYERS


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
def test_the_embedded_model_answers_as_on_dense_caches(dtype):
    dense, checkpoint = load_model("tiny", dtype, enable_flash_attn=True)
    paged, _ = load_model("tiny", dtype, week=3)
    prompt = checkpoint.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is FlashAttention?"}]
    )
    ids = checkpoint.tokenizer.encode(prompt, add_special_tokens=False)
    of_dense, of_paged = (
        list(cached_tokens(model, ids, TokenSampler(ids), 24, prefill_step=16)) for model in (dense, paged)
    )
    assert of_paged == of_dense
    assert not paged.page_pool.used_page_ids


def test_a_step_on_pages_starts_before_the_previous_one_has_ended():
    model = model_of(3)
    cache = model.create_kv_cache()
    model(tokens(1, 4), 0, cache)
    assert model.starts_ahead(cache)
