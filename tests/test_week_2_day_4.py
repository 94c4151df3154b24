"""Week 2, days 4 and 5: FlashAttention. Task 0 is Python, 1 the wrapper, 2 and 3 are kernels, 4 the model."""

import mlx.core as mx
import numpy as np
import pytest

from extensions import tiny_llm_ext

from .metal.course import attention_on_gpu
from .support.attention.flat_heads import check_flat, flat
from .support.attention.ideas import IDEAS
from .support.cases import DTYPE_IDS, DTYPES, MASKS, make_mask, normal, qkv, random_mask
from .support.models.checkpoints import checkpoint, tokens
from .support.models.logits import assert_logits
from .support.refusal import fitting_arguments
from .support.tolerance import to_float64
from .tiny_llm_base import (
    Qwen2ModelWeek2,
    causal_mask,
    flash_attention,
    flash_attention_v1,
    flash_attention_v2,
    scaled_dot_product_attention_grouped,
)
from .utils import assert_rounded_once, attention_in_float64, on_each_device

# The kernel walks over tiles of 32 x 32: each pair needs several of them, the last ones incomplete.
LENGTHS = [(33, 65), (70, 131), (257, 300), (65, 65), (65, 33), (1, 257)]


one_idea = pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.__name__)


def check_flash(stream, inputs, scale=None, mask=None):
    """flash_attention equals the oracle, in the type of the query; returns the result."""
    with mx.stream(stream):
        result = flash_attention(*inputs, scale=scale, mask=mask)
        assert_rounded_once(result, attention_in_float64(*inputs, scale, mask), inputs[0].dtype)
    return result


# Task 0: two loop orders in src/tiny_llm/course/schedules.py


@one_idea
@pytest.mark.parametrize("schedule", [flash_attention_v2, flash_attention_v1])
def test_task_0_flash_attention_in_python(schedule, idea):
    """The ideas one by one, in several tiles both ways; the heads of a group are an axis."""
    query, key, value, mask = idea()
    inputs = mx.unflatten(query, 1, (key.shape[1], -1)), key[:, :, None], value[:, :, None]
    options = {"causal": True} if isinstance(mask, str) else {"mask": mask}
    out, _ = schedule(*inputs, tile=(2, 32), **options)
    expected = attention_in_float64(query, key, value, mask=mask)
    assert_rounded_once(out.flatten(1, 2), expected, mx.float32, idea.__doc__)


# Task 1: the wrapper flash_attention in src/tiny_llm/attention.py


@on_each_device
@pytest.mark.parametrize("as_array", [False, True], ids=["number", "array"])
def test_task_1_flash_attention_with_a_given_scale(stream, as_array):
    """The scale replaces E ** -0.5; an array without dimensions is as good as a Python number."""
    inputs = qkv(L=33, S=65)
    with mx.stream(stream):
        result = flash_attention(*inputs, mx.array(0.1) if as_array else 0.1)
        assert_rounded_once(result, attention_in_float64(*inputs, 0.1), mx.float32)


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("mask", [None, "causal"])
def test_task_1_flash_attention_takes_any_rank_and_precision(stream, dtype, mask):
    """The dimensions in front of the heads come back as they were, and so does the type."""
    for batch in ((3,), (), (2, 3)):
        check_flash(stream, qkv(batch=batch, heads=6, kv_heads=2, L=33, S=65, E=64, dtype=dtype), mask=mask)


@on_each_device
@pytest.mark.parametrize("kind", ["f32", "f16", "bool"])
def test_task_1_flash_attention_spreads_a_mask_over_its_missing_dimensions(stream, kind):
    """A float mask of any precision is added to the scaled scores; a bool mask keeps what it marks True."""
    dtype = {"f32": mx.float32, "f16": mx.float16}.get(kind)
    for shape in ((33, 65), (65,), (2, 1, 1, 65), (4, 33, 1), (2, 4, 33, 65)):
        mask = random_mask(*shape) if dtype is None else normal(*shape, dtype=dtype, seed=9)
        check_flash(stream, qkv(L=33, S=65), mask=mask)


@on_each_device
def test_task_1_flash_attention_takes_any_memory_layout(stream):
    """Projections are transposed, caches have gaps, and one batch may be spread over several."""
    query = normal(2, 70, 4, 64, seed=1).swapaxes(1, 2)
    key = normal(2, 2, 131, 128, seed=2)[..., ::2]
    value = mx.broadcast_to(normal(1, 2, 131, 64, seed=3), (2, 2, 131, 64))
    mask = normal(131, 70, seed=4).T
    for kind in (None, "causal", mask):
        check_flash(stream, (query, key, value), mask=kind)


@on_each_device
@pytest.mark.parametrize("mask", [None, "causal"])
def test_task_1_flash_attention_reads_no_further_than_its_slice_of_a_cache(stream, mask):
    """Around the tokens in a cache lie older ones; here these are NaN, which no sum survives."""
    query, key, value = qkv(L=33, S=65, E=64)
    stale = mx.full((2, 2, 35, 64), mx.nan)
    cached = [mx.concatenate([stale, x, stale], axis=2)[:, :, 35:100] for x in (key, value)]
    with mx.stream(stream):
        result = flash_attention(query, *cached, mask=mask)
        assert_rounded_once(result, attention_in_float64(query, key, value, mask=mask), mx.float32)


@on_each_device
@pytest.mark.parametrize("mask", [None, "causal"])
def test_task_1_flash_attention_of_nothing(stream, mask):
    """Without queries the result is empty; over no keys it is zero."""
    assert check_flash(stream, qkv(L=0, S=65), mask=mask).shape == (2, 4, 0, 32)
    assert (to_float64(check_flash(stream, qkv(L=33, S=0), mask=mask)) == 0).all()


@on_each_device
def test_task_1_flash_attention_has_the_gradient_of_grouped_attention(stream):
    """A gradient may be missing, but it must not be silently wrong; ours is there."""
    inputs = qkv(L=33, S=65)
    weight = normal(2, 4, 33, 32, seed=9)

    def gradient(attention):
        loss = lambda *args: mx.sum(weight * attention(*args, mask="causal"))  # noqa: E731
        return mx.grad(loss, argnums=(0, 1, 2))(*inputs)

    with mx.stream(stream):
        pairs = zip(gradient(flash_attention), gradient(scaled_dot_product_attention_grouped), strict=True)
        for ours, expected in pairs:
            assert mx.max(mx.abs(ours - expected)) <= 1e-5 * mx.max(mx.abs(expected))


@on_each_device
def test_task_1_flash_attention_can_be_mapped_over_an_axis(stream):
    """mx.vmap over a new first axis equals a loop over it."""
    inputs = [mx.stack(pair) for pair in zip(qkv(seed=1, L=33, S=65), qkv(seed=2, L=33, S=65), strict=True)]
    with mx.stream(stream):
        mapped = mx.vmap(flash_attention)(*inputs)
        assert_rounded_once(mapped, attention_in_float64(*inputs), mx.float32)


@pytest.mark.parametrize(
    "wrong",
    [{"value": (2, 2, 64, 32)}, {"key": (2, 2, 65, 31)}, {"key": (1, 2, 65, 32), "value": (1, 2, 65, 32)},
     {"query": (2, 3, 33, 32)}, {"query": (33, 32), "key": (65, 32), "value": (65, 32)}, {"key": mx.float16},
     {"query": mx.int32, "key": mx.int32, "value": mx.int32}, {"mask": mx.int32}, {"mask": "casual"},
     {"mask": (33, 64)}, {"mask": (1, 2, 4, 33, 65)}],
    ids=str,
)  # fmt: skip
def test_task_1_flash_attention_refuses_invalid_arguments(wrong):
    """Every error is a ValueError at the call that names the function."""
    sizes = {"query": (2, 4, 33, 32), "key": (2, 2, 65, 32), "value": (2, 2, 65, 32), "mask": (33, 65)}
    with pytest.raises(ValueError, match="flash_attention: "):
        flash_attention(**fitting_arguments(sizes, wrong))


# Task 2: the kernel of src/extensions/src/flash_attention.cpp, through the wrapper and its own binding

on_the_cpu = pytest.mark.parametrize("stream", [mx.cpu], ids=["cpu"])


@on_the_cpu
@one_idea
def test_task_2_flash_attention_kernel_one_idea(stream, idea):
    """The kernel's ideas one by one: support/attention/ideas.py has the cases."""
    *inputs, mask = idea()
    with mx.stream(stream):
        result = flash_attention(*inputs, mask=mask)
        assert_rounded_once(result, attention_in_float64(*inputs, mask=mask), mx.float32, idea.__doc__)


@on_the_cpu
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("L", "S"), LENGTHS)
def test_task_2_flash_attention_kernel(stream, mask, L, S):
    """All kinds of masks and lengths."""
    inputs = qkv(batch=(2,), heads=6, kv_heads=2, L=L, S=S, E=64)
    check_flash(stream, inputs, mask=make_mask(mask, 2, 6, L, S))


@on_the_cpu
@pytest.mark.parametrize("E", [1, 3, 40, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2)])
def test_task_2_flash_attention_kernel_of_other_head_sizes(stream, E, heads, kv_heads):
    """No head size is too odd for the CPU."""
    for mask in (None, "causal"):
        check_flash(stream, qkv(heads=heads, kv_heads=kv_heads, L=70, S=131, E=E), mask=mask)


@on_the_cpu
@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize("hidden", [32, 40, 64, 130])
def test_task_2_flash_attention_kernel_of_rows_whose_first_keys_are_hidden(stream, kind, hidden):
    """A batch padded on the left: the first tiles hold nothing, and their maximum of -inf must do no harm."""
    mask = mx.broadcast_to(mx.arange(131) >= hidden, (70, 131))
    mask = mx.stack([mask, mx.ones_like(mask)])[:, None]
    if kind == "float":
        mask = mx.where(mask, 0.0, -mx.inf)
    check_flash(stream, qkv(L=70, S=131, E=64), mask=mask)
    by_rows = (mx.arange(131) >= hidden) | (mx.arange(70)[:, None] % 2 == 0)  # neighbours in a tile differ
    check_flash(stream, qkv(L=70, S=131, E=64), mask=by_rows)


@on_the_cpu
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_task_2_flash_attention_kernel_of_rows_that_see_no_key(stream, kind):
    """Such rows are zero, also where all rows of a tile are among them."""
    seen = (mx.arange(70) % 3 != 1) & ((mx.arange(70) < 32) | (mx.arange(70) >= 64))
    mask = mx.broadcast_to(seen[:, None], (70, 131))
    if kind == "float":
        mask = mx.where(mask, 0.0, -mx.inf)
    result = to_float64(check_flash(stream, qkv(L=70, S=131, E=64), mask=mask))
    assert ((result == 0).all(axis=(0, 1, 3)) == ~np.array(seen)).all()


@on_the_cpu
@pytest.mark.parametrize("mask", [None, "causal"])
def test_task_2_flash_attention_kernel_needs_memory_for_rows_not_for_scores(stream, mask):
    """Four times the tokens may take four times the memory; the scores of 2048 tokens would be 235 MB."""

    def extra_memory(tokens):
        with mx.stream(stream):
            inputs = qkv(batch=(1,), heads=14, kv_heads=2, L=tokens, E=64)
            mx.eval(inputs)
            mx.synchronize()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            result = flash_attention(*inputs, mask=mask)
            mx.eval(result)
            mx.synchronize()
            return mx.get_peak_memory() - before - result.nbytes

    page = 16384  # MLX rounds large arrays up to whole pages
    assert extra_memory(2048) <= 4 * extra_memory(512) + 4 * page


@on_the_cpu
@pytest.mark.parametrize(("L", "S"), LENGTHS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (3, 1)])
def test_task_2_flash_attention_binding_takes_flat_heads(stream, L, S, heads, kv_heads):
    """Query row n reads key row n // (num_heads / num_kv_heads), with either mask, both or none."""
    inputs = qkv(batch=(2,), heads=heads, kv_heads=kv_heads, L=L, S=S, E=64)
    mask = normal(2, heads, L, S, seed=9)
    causal = mask + causal_mask(L, S, mx.float32)
    check_flat(stream, inputs, attention_in_float64(*inputs, 0.1))
    check_flat(stream, inputs, attention_in_float64(*inputs, 0.1, "causal"), is_causal=True)
    check_flat(stream, inputs, attention_in_float64(*inputs, 0.1, mask), flat([mask])[0])
    check_flat(stream, inputs, attention_in_float64(*inputs, 0.1, causal), flat([mask])[0], is_causal=True)


@on_the_cpu
def test_task_2_flash_attention_binding_has_a_scale_of_one_and_no_mask_by_default(stream):
    """Mask, scale and is_causal may be left out; the numbers of heads may not."""
    query, key, value = qkv(batch=(1,), heads=4, kv_heads=2, L=33, S=65, E=64)
    inputs = (query * 0.1, key, value)
    result = tiny_llm_ext.flash_attention(*flat(inputs), num_kv_heads=2, num_heads=4, stream=stream)
    assert_rounded_once(result, attention_in_float64(*inputs, 1.0)[0], mx.float32)
    with pytest.raises(TypeError):
        tiny_llm_ext.flash_attention(*flat(inputs))


@on_the_cpu
def test_task_2_flash_attention_binding_repairs_the_layout(stream):
    """Layout is no reason for an error: transposed, sliced and spread inputs give the same result."""
    query = normal(70, 4, 64, seed=1).swapaxes(0, 1) * 0.1
    key = normal(2, 150, 128, seed=2)[:, 10:141, ::2]
    value = mx.broadcast_to(normal(1, 131, 64, seed=3), (2, 131, 64))
    mask = normal(131, 70, seed=4).T
    result = tiny_llm_ext.flash_attention(
        query, key, value, mx.broadcast_to(mask, (4, 70, 131)), num_kv_heads=2, num_heads=4, stream=stream
    )
    assert_rounded_once(result, attention_in_float64(query, key, value, 1.0, mask), mx.float32)


@on_the_cpu
@pytest.mark.parametrize(
    "wrong",
    [{"query": mx.float16}, {"key": mx.float16}, {"value": mx.float16}, {"mask": mx.float16},
     {"query": (1, 4, 33, 64)}, {"key": (65, 64)}, {"value": (1, 2, 65, 64)},
     {"mask": (33, 65)}, {"mask": (1, 33, 65)}, {"mask": (4, 33, 64)},
     {"num_heads": 0}, {"num_heads": -4}, {"num_kv_heads": 0},
     {"num_heads": 3, "query": (3, 33, 64), "mask": (3, 33, 65)}, {"query": (6, 33, 64), "mask": (6, 33, 65)},
     {"key": (3, 65, 64)}, {"value": (3, 65, 64)}, {"key": (3, 65, 64), "value": (3, 65, 64)},
     {"value": (4, 65, 64)}, {"key": (4, 65, 64), "value": (4, 65, 64)},
     {"key": (2, 65, 63)}, {"value": (2, 65, 63)}, {"key": (2, 65, 63), "value": (2, 65, 63)},
     {"value": (2, 64, 64)}],
    ids=str,
)  # fmt: skip
def test_task_2_flash_attention_binding_refuses_invalid_arguments(stream, wrong):
    """Every error is a ValueError at the call, before anything is evaluated, and names the function."""
    sizes = {"query": (4, 33, 64), "key": (2, 65, 64), "value": (2, 65, 64), "mask": (4, 33, 65)}
    arguments = {"num_kv_heads": 2, "num_heads": 4} | fitting_arguments(sizes, wrong)
    with pytest.raises(ValueError, match="flash_attention: "):
        tiny_llm_ext.flash_attention(**arguments, stream=stream)


# Task 3: the kernel of src/extensions/src/flash_attention.metal, on a GPU or, without one, on the processor


def check_on_gpu(inputs, mask):
    """The kernel equals the oracle."""
    result = attention_on_gpu(*inputs, mask)
    assert_rounded_once(result, attention_in_float64(*inputs, mask=mask), mx.float32)


@one_idea
def test_task_3_flash_attention_gpu_kernel_one_idea(idea):
    """Those of task 2."""
    *inputs, mask = idea()
    expected = attention_in_float64(*inputs, mask=mask)
    assert_rounded_once(attention_on_gpu(*inputs, mask), expected, mx.float32, idea.__doc__)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("L", "S"), LENGTHS)
def test_task_3_flash_attention_gpu_kernel(mask, L, S):
    """All kinds of masks and lengths."""
    inputs = qkv(batch=(1,), heads=2, kv_heads=1, L=L, S=S, E=40)
    check_on_gpu(inputs, make_mask(mask, 1, 2, L, S))


@pytest.mark.parametrize(
    ("E", "heads", "kv_heads"),
    [(1, 6, 2), (3, 2, 2), (40, 7, 1), (64, 6, 2), (80, 2, 2), (96, 7, 1), (128, 6, 2)],
)
def test_task_3_flash_attention_gpu_kernel_of_any_head_size(E, heads, kv_heads):
    inputs = qkv(batch=(2,), heads=heads, kv_heads=kv_heads, L=33, S=65, E=E)
    check_on_gpu(inputs, "causal")


# Task 4: the switch in src/tiny_llm/qwen2_week2.py


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_task_4_model_attends_with_the_kernel_that_enable_flash_attn_chooses(stream, dtype):
    """A prompt, a chunk and a token: the same logits either way, as far as their type goes."""
    weights, inputs = checkpoint(), tokens(2, 70)
    with mx.stream(stream):
        grouped, flash = (Qwen2ModelWeek2(weights, on, dtype=dtype) for on in (False, True))
        assert [layer.self_attn.use_flash_attention for layer in flash.layers_inner] == [True] * 3
        caches = grouped.create_kv_cache(), flash.create_kv_cache()
        for start, stop in [(0, 33), (33, 69), (69, 70)]:
            want, got = (
                model(inputs[:, start:stop], start, cache)
                for model, cache in zip((grouped, flash), caches, strict=True)
            )
            assert got.dtype == dtype
            assert_logits(got, want, tolerance=1e-5 if dtype == mx.float32 else 2e-2)
