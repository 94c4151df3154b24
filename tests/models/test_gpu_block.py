"""A block in MLX's fused operations, for a GPU: its logits are those of its layers."""

import mlx.core as mx
import pytest

from tiny_llm.cache.batching import BatchingKvCache
from tiny_llm.cache.full import TinyKvFullCache
from tiny_llm.cache.stacked import StackedKvCache
from tiny_llm.models import dispatch_model, gpu_block

from ..support.gpu import DEVICE_NAME, on_a_gpu
from ..support.models.checkpoints import checkpoint, each_family, tokens
from ..support.models.logits import TOLERANCE, assert_logits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

each_format = pytest.mark.parametrize("bits", [4, 8, None], ids=["4-bit", "8-bit", "dense"])
LAYERS = 2
# New tokens of each step, negative for rewound ones. Caches get full and grow.
STEPS = (20, 12, 1, 1, -3, 4, 1, 300, 1)
ROUNDING = 1e-5  # in float32, relative to the largest logit; 3e-6 was measured


def model_of(family="qwen2", *, weights=None, dtype=mx.float32, **options):
    if weights is None:
        weights = checkpoint(family, layers=LAYERS, scale_dtype=dtype, **options)
    return dispatch_model("a folder", weights, 2, dtype=dtype, enable_flash_attn=True)


def fused_model_of(family="qwen2", *, weights=None, dtype=mx.float32, **options):
    if weights is None:  # quantized on the CPU, as for `model_of`: a GPU rounds some weights otherwise
        weights = checkpoint(family, layers=LAYERS, scale_dtype=dtype, **options)
    with on_a_gpu():
        model = model_of(weights=weights, dtype=dtype)
    assert all(block.gpu_weights is not None for block in model.layers_inner)
    return model


@pytest.fixture
def fused_steps(monkeypatch):
    """The number of new tokens of each run of a fused block."""
    steps, project = [], gpu_block._project

    def recorded(block, weights, x, starts):
        steps.append(x.shape[1])
        return project(block, weights, x, starts)

    monkeypatch.setattr(gpu_block, "_project", recorded)
    return steps


def logits_of(model, rows=1, steps=STEPS, last_only=False):
    """The logits of each step."""
    cache, offset, results = model.create_kv_cache(), 0, []
    for number, new in enumerate(steps):
        if new < 0:
            for layer in cache:
                layer.rewind(-new)
        else:
            ids = tokens(rows, new, seed=number)
            results.append((model.next_logits if last_only else model)(ids, offset, cache))
        offset += new
    mx.eval(results)
    return results


def assert_same_logits(actual, expected, tolerance=ROUNDING):
    for ours, theirs in zip(actual, expected, strict=True):
        assert_logits(ours, theirs, tolerance)


@each_family
@each_format
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("last_only", [False, True], ids=["all logits", "next logits"])
def test_prompts_in_chunks_steps_and_rewinds(family, bits, rows, last_only, fused_steps):
    ours, layers = fused_model_of(family, bits=bits), model_of(family, bits=bits)
    with on_a_gpu():
        actual = logits_of(ours, rows, last_only=last_only)
    assert fused_steps == [new for new in STEPS if new > 0 for _ in range(LAYERS)]
    assert_same_logits(actual, logits_of(layers, rows, last_only=last_only))
    assert len(fused_steps) == LAYERS * len(actual)


@each_family
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["f16", "bf16"])
def test_dense_half_types(family, dtype):
    """Against the layers in float32 on the same weights. Only dense: MLX's packed products on the CPU
    accumulate in the half type."""
    ours = fused_model_of(family, dtype=dtype, bits=None)
    exact = model_of(weights=checkpoint(family, layers=LAYERS, bits=None, scale_dtype=dtype))
    with on_a_gpu():
        actual = logits_of(ours)
    assert {logits.dtype for logits in actual} == {dtype}
    assert_same_logits(actual, logits_of(exact), TOLERANCE[dtype])


@each_family
def test_rows_at_different_positions(family, fused_steps):
    offsets = [7, 0, 11]

    def logits(model, offset=offsets):
        cache = model.create_kv_cache()
        results = [model(tokens(3, new, seed=new), offset, cache) for new in (5, 1)]
        mx.eval(results)
        return results

    with on_a_gpu():
        model = fused_model_of(family)
        actual, from_array = logits(model), logits(model, mx.array(offsets))
    assert len(fused_steps) == 4 * LAYERS
    expected = logits(model_of(family))
    assert_same_logits(actual, expected)
    assert_same_logits(from_array, expected)


def in_batch(model, lengths, steps, last_only):
    """The logits of each step of a batch, each slot prefilled with that many tokens; None is idle."""
    batch = model.create_batch_cache(len(lengths), 400)
    for slot, length in enumerate(lengths):
        if length is not None:
            cache = model.create_kv_cache()
            mx.eval(model(tokens(1, length, seed=slot), 0, cache))
            for layer, prefilled in zip(batch, cache, strict=True):
                layer.add_request(prefilled, slot)
    offsets, results = [length or 0 for length in lengths], []
    active = [slot for slot, length in enumerate(lengths) if length is not None]
    for number, new in enumerate(steps):
        ids = tokens(len(lengths), new, seed=number)
        logits = (model.next_logits if last_only else model)(ids, offsets, batch)
        results.append(mx.stack([logits[slot] for slot in active]))
        offsets = [offset + new if slot in active else 0 for slot, offset in enumerate(offsets)]
    mx.eval(results)
    return batch, results


@each_family
@each_format
@pytest.mark.parametrize("last_only", [False, True], ids=["all logits", "next logits"])
def test_requests_of_different_lengths(family, bits, last_only, fused_steps):
    lengths, steps = (5, None, 30, 254), (1, 1, 3, 1)
    with on_a_gpu():
        batch, actual = in_batch(fused_model_of(family, bits=bits), lengths, steps, last_only)
    assert {type(layer) for layer in batch} == {StackedKvCache}
    assert len(fused_steps) == LAYERS * (len(steps) + 3)
    with mx.stream(getattr(mx, DEVICE_NAME)):  # CUDA sums products of 8-bit weights in another order
        batch, expected = in_batch(model_of(family, bits=bits), lengths, steps, last_only)
    assert {type(layer) for layer in batch} == {BatchingKvCache}
    assert_same_logits(actual, expected)


def test_a_fused_model_runs_its_layers_outside_of_a_gpu(fused_steps):
    model = fused_model_of()
    actual = logits_of(model)
    assert fused_steps == []
    assert_same_logits(actual, logits_of(model_of()))
    assert {type(layer) for layer in model.create_batch_cache(2, 9)} == {BatchingKvCache}


def test_a_model_built_on_the_cpu_runs_its_layers_on_a_gpu(fused_steps):
    model = model_of()
    with on_a_gpu():
        actual = logits_of(model)
        assert {type(layer) for layer in model.create_batch_cache(2, 9)} == {BatchingKvCache}
    assert fused_steps == []
    assert_same_logits(actual, logits_of(model_of()))


@pytest.mark.parametrize("week", [1, 3])
def test_other_models_on_a_gpu_compute_what_they_compute_on_the_cpu(week, fused_steps):
    def logits():
        model = dispatch_model("a folder", checkpoint(scale_dtype=mx.float32), week, dtype=mx.float32)
        arguments = () if week == 1 else (0, model.create_kv_cache())
        result = model(tokens(1, 9), *arguments)
        mx.eval(result)
        return result

    with on_a_gpu():
        actual = logits()
    assert fused_steps == []
    assert_logits(actual, logits(), ROUNDING)


def test_a_step_may_be_started_ahead():
    model = fused_model_of()
    cache = model.create_kv_cache()
    assert isinstance(cache[0], TinyKvFullCache)
    assert not model.starts_ahead(cache)
    with on_a_gpu():
        assert model.starts_ahead(cache)
