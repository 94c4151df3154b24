"""Our models and mlx-lm's, on the same random weights and all in float32, give the same logits."""

import mlx.core as mx
import pytest

from tiny_llm.kv_cache import BatchingKvCache
from tiny_llm.models import dispatch_model

from ..support.checkpoints import checkpoint, tokens
from ..support.logits import assert_logits
from ..support.mlx_lm_model import peer

pytest.importorskip("mlx_lm", reason="mlx-lm, the peer, is not installed")

FAMILIES = ["qwen2", "qwen3"]
# Every way to run a model with a cache: the week it is from, and its options.
CACHED = {
    "packed": (2, {}),
    "flash": (2, {"enable_flash_attn": True}),
    "paged": (3, {"page_size": 7}),
    "one page": (3, {}),
}


def ours(weights, how, dtype=mx.float32):
    week, options = CACHED[how]
    return dispatch_model("a folder", weights, week, dtype=dtype, **options)


@pytest.fixture(scope="module", params=FAMILIES)
def weights(request):
    return checkpoint(request.param)


@pytest.fixture(scope="module")
def expected(weights):
    """The peer's logits of one row of 70 tokens."""
    return peer(weights)(tokens(1, 70))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("bits", [4, 8, None], ids=["4 bits", "8 bits", "dense"])
@pytest.mark.parametrize("scale_dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
def test_every_kind_of_checkpoint(family, tied, bits, scale_dtype):
    weights = checkpoint(family, tied=tied, bits=bits, scale_dtype=scale_dtype, layers=2)
    inputs = tokens(2, 33)
    logits = peer(weights)(inputs)
    assert_logits(dispatch_model("a folder", weights, 1, dtype=mx.float32)(inputs), logits)
    model = ours(weights, "flash")
    assert_logits(model(inputs, 0, model.create_kv_cache()), logits)


@pytest.mark.parametrize("group_size", [32, 128])
def test_other_sizes_of_groups(group_size):
    weights = checkpoint(group_size=group_size, intermediate_size=256)
    model = ours(weights, "packed")
    assert_logits(model(tokens(1, 33), 0, model.create_kv_cache()), peer(weights)(tokens(1, 33)))


def test_without_a_cache(weights, expected):
    assert_logits(dispatch_model("a folder", weights, 1, dtype=mx.float32)(tokens(1, 70)), expected)


@pytest.mark.parametrize("how", CACHED)
@pytest.mark.parametrize("chunk", [1, 16, 33, 70])
def test_in_chunks_of_any_length(weights, expected, how, chunk):
    """One token at a time, the whole prompt at once, and what lies between."""
    model, inputs = ours(weights, how), tokens(1, 70)
    cache = model.create_kv_cache()
    pieces = [model(inputs[:, start : start + chunk], start, cache) for start in range(0, 70, chunk)]
    assert_logits(mx.concatenate(pieces, axis=1), expected)


@pytest.mark.parametrize("how", CACHED)
def test_after_a_rewind(weights, expected, how):
    """Tokens that were taken back leave no trace."""
    model, inputs = ours(weights, how), tokens(1, 70)
    cache = model.create_kv_cache()
    model(inputs[:, :40], 0, cache)
    model(tokens(1, 9, seed=5), 40, cache)
    for layer in cache:
        layer.rewind(16)
    assert_logits(model(inputs[:, 33:], 33, cache), expected[:, 33:])


@pytest.mark.parametrize("how", CACHED)
def test_a_batch_of_ragged_lengths(weights, how):
    """Three requests of different lengths, and an idle slot, decode side by side as each would alone."""
    model, theirs = ours(weights, how), peer(weights)
    lengths = {0: 5, 2: 40, 3: 33}
    prompts = {slot: tokens(1, length + 6, seed=slot) for slot, length in lengths.items()}
    batch = [BatchingKvCache(4, 100) for _ in range(model.num_hidden_layers)]
    for slot, length in lengths.items():
        cache = model.create_kv_cache()
        model(prompts[slot][:, :length], 0, cache)
        for layer, prefilled in zip(batch, cache, strict=True):
            layer.add_request(prefilled, slot)
    expected = {slot: theirs(prompt) for slot, prompt in prompts.items()}
    done = 0
    for step in (1, 2, 1, 2):  # several tokens at a time are as good as one
        inputs, offsets = mx.zeros((4, step), mx.int32), [0] * 4
        for slot, length in lengths.items():
            offsets[slot] = length + done
            inputs[slot] = prompts[slot][0, length + done : length + done + step]
        logits = model(inputs, offsets, batch)
        for slot, start in enumerate(offsets):
            if slot in lengths:
                assert_logits(logits[slot : slot + 1], expected[slot][:, start : start + step])
        done += step


@pytest.mark.parametrize("how", ["without a cache", *CACHED])
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_activations_of_16_bits(weights, expected, how, dtype):
    """Rounded at every layer, but summed up in float32."""
    inputs = tokens(1, 70)
    if how == "without a cache":
        logits = dispatch_model("a folder", weights, 1, dtype=dtype)(inputs)
    else:
        model = ours(weights, how, dtype)
        logits = model(inputs, 0, model.create_kv_cache())
    assert logits.dtype == dtype
    assert_logits(logits, expected, tolerance=2e-2)
