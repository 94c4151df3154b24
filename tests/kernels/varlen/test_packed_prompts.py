"""`standard_attention` and `naive_tile_attention`: the same result as `flash_attention_prefill`."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import flash_attention_prefill, naive_tile_attention, standard_attention

from ...support.attention.packed import packed
from ...support.cases import DTYPE_IDS, DTYPES
from ...support.refusal import case_id, fitting_arguments, refused
from ...support.tolerance import FLOOR, to_float64

FUNCTIONS = (standard_attention, naive_tile_attention)
SHAPES = {"q": (12, 4, 32), "k": (12, 2, 32), "v": (12, 2, 32)}
SIZES = {"cu_seqlens": [0, 12], "scale": 1.0, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("lengths", [[60, 60], [5, 0, 35], [64], [], [0], [3, 3, 1, 1, 64]], ids=str)
def test_prompts_of_any_lengths(function, dtype, lengths):
    call = packed(lengths, heads=4, kv_heads=2, E=32, dtype=dtype)
    arguments = (*call[:4], 0.125, 4, 2, 32)
    out, want = function(*arguments), flash_attention_prefill(*arguments)
    assert out.dtype == dtype
    assert out.shape == want.shape
    np.testing.assert_allclose(to_float64(out), to_float64(want), atol=2 * FLOOR[dtype], rtol=0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nan_of_a_prompt_does_not_reach_its_neighbours(function):
    call = packed([5, 7, 40], heads=4, kv_heads=2, E=32)
    token = mx.arange(52)[:, None, None]
    v = mx.where((token >= 5) & (token < 12), mx.nan, call.value)
    out = to_float64(function(call.query, call.key, v, [0, 5, 12, 52], 0.125, 4, 2, 32))
    assert np.isnan(out[5:12]).all()
    assert np.isfinite(out[:5]).all()
    assert np.isfinite(out[12:]).all()


@pytest.mark.parametrize(("head_dim", "fits"), [(32, 128), (64, 128), (128, 64)])
def test_a_prompt_beyond_the_tile_is_an_error(head_dim, fits):
    long = packed([1, fits + 1], heads=2, kv_heads=1, E=head_dim)
    whole = packed([1, fits], heads=2, kv_heads=1, E=head_dim)
    sizes = (None, 2, 1, head_dim)
    assert naive_tile_attention(*whole[:4], *sizes).shape == (fits + 1, 2, head_dim)
    with pytest.raises(ValueError, match=rf"^naive_tile_attention: cu_seqlens: .*at most {fits}$"):
        naive_tile_attention(*long[:4], *sizes)
    assert naive_tile_attention(*long[:4], *sizes, max_seq_len=fits + 1).shape == long.query.shape


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("q", {"num_heads": 5}),
        ("k", {"num_kv_heads": 1}),
        ("k", {"k": (11, 2, 32), "v": (11, 2, 32)}),
        ("v", {"v": (12, 2, 31)}),
        ("q", {"head_dim": 16}),
        ("cu_seqlens", {"cu_seqlens": [0, 5]}),
        ("cu_seqlens", {"cu_seqlens": [1, 12]}),
        ("cu_seqlens", {"cu_seqlens": [0, 8, 5, 12]}),
        ("cu_seqlens", {"cu_seqlens": []}),
    ],
    ids=case_id,
)
def test_bad_arguments_are_refused(function, argument, wrong):
    with refused(argument, function=function.__name__):
        function(**fitting_arguments(SHAPES, SIZES | wrong))
