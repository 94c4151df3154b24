"""Rotary embedding equals its definition in float64, at every position, in every layout."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.positional_encoding import RoPE, RotationTable
from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.late_errors import fails_whenever_evaluated
from ...support.refusal import case_id, refused
from ...support.rows import LAYOUTS, assert_rounded_once, graph_of, same_gradients, same_when_mapped
from ...support.tolerance import to_float64

rope = load_extension().rope
POSITIONS, BASE = 90, 10000
N, S, H, D = 2, 5, 3, 16


def rotate(x, offset, **options):
    table = RotationTable(x.shape[-1], POSITIONS, BASE)
    return rope(x, table.cos, table.sin, offset, **options)


def definition(x: mx.array, offset: int | list[int], traditional: bool = False) -> np.ndarray:
    wide = to_float64(x)
    rows, length, _, dims = x.shape
    starts = np.broadcast_to(offset, rows)
    positions = starts[:, None] + np.arange(length)
    angle = positions[:, :, None] * BASE ** (-np.arange(dims // 2) / (dims // 2))
    cos, sin = np.cos(angle)[:, :, None], np.sin(angle)[:, :, None]
    result = np.empty_like(wide)
    pairs = (np.s_[..., ::2], np.s_[..., 1::2])
    if not traditional:
        pairs = (np.s_[..., : dims // 2], np.s_[..., dims // 2 :])
    real, imaginary = wide[pairs[0]], wide[pairs[1]]
    result[pairs[0]] = real * cos - imaginary * sin
    result[pairs[1]] = imaginary * cos + real * sin
    return result


def check(x, offset, traditional=False):
    expected = definition(x, offset, traditional)
    result = rotate(x, offset, traditional=traditional)
    assert_rounded_once(result, expected, x.dtype)
    first = rotate(x, offset, traditional=traditional, heads_first=True)
    assert mx.array_equal(first, result.swapaxes(1, 2))
    return result


@pairwise({"dims": [2, 6, 8, 14, 16, 18, 64, 66, 128], "traditional": [False, True], "dtype": DTYPES})
def test_each_head_size_and_dtype(dims, traditional, dtype):
    check(normal(N, S, H, dims, dtype=dtype), [0, 80], traditional)


@pytest.mark.parametrize("shape", [(1, 1, 1, 8), (1, 1, 14, 64), (3, 1, 2, 64), (1, 80, 14, 64)], ids=str)
@pytest.mark.parametrize("offset", [0, 7])
def test_each_shape(shape, offset):
    """The last one runs on several threads."""
    check(normal(*shape), offset)


@pytest.mark.parametrize("shape", [(0, 5, 3, 8), (2, 0, 3, 8), (2, 5, 0, 8)], ids=str)
def test_sizes_of_zero(shape):
    assert rotate(mx.zeros(shape), 4).shape == shape


def test_offsets_as_numbers_and_as_arrays():
    x = normal(N, S, H, D)
    one, each = rotate(x, 7), rotate(x, [7, 30])
    assert mx.array_equal(rotate(x, [7, 7]), one)
    assert mx.array_equal(rotate(x, (7, 30)), each)
    for dtype in (mx.int32, mx.int64):
        assert mx.array_equal(rotate(x, mx.array(7, dtype=dtype)), one)
        assert mx.array_equal(rotate(x, mx.array([7, 30], dtype=dtype)), each)
        assert mx.array_equal(rotate(x, mx.array([7, 0, 30, 0], dtype=dtype)[::2]), each)
        assert mx.array_equal(rotate(x, mx.broadcast_to(mx.array(7, dtype=dtype), (N,))), one)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, traditional, dtype):
    x = normal(N, S, H, D, dtype=dtype)
    table = RotationTable(D, POSITIONS, BASE)
    for heads_first in (False, True):
        options = {"traditional": traditional, "heads_first": heads_first}
        moved = rope(layout(x), layout(table.cos), layout(table.sin), [3, 40], **options)
        assert mx.array_equal(moved, rotate(x, [3, 40], **options))


def test_transposed_and_broadcast_heads():
    x = normal(N, S, H, D)
    assert mx.array_equal(rotate(mx.contiguous(x.swapaxes(1, 2)).swapaxes(1, 2), 7), rotate(x, 7))
    same = mx.broadcast_to(x[:, :, :1], x.shape)
    check(same, 7)


def test_nan_stays_in_its_pair():
    x = normal(N, S, H, D)
    x[1, 2, 1, 3] = mx.nan
    wrong = mx.isnan(rotate(x, 0))
    assert wrong.sum().item() == 2
    assert wrong[1, 2, 1, 3].item()
    assert wrong[1, 2, 1, 3 + D // 2].item()


def plain(traditional: bool, heads_first: bool, offset: int | list[int]):
    """The layer as MLX operations."""

    def rotated(x):
        starts = offset if isinstance(offset, list) else [offset] * x.shape[0]
        with graph_of("tiny_llm.positional_encoding"):
            result = RoPE(D, POSITIONS, BASE, traditional)(x, [slice(o, o + x.shape[1]) for o in starts])
        return result.swapaxes(1, 2) if heads_first else result

    return rotated


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("traditional", [False, True])
def test_results_and_gradients_equal_those_of_the_graph(traditional, heads_first, dtype):
    """The results are bitwise equal: both round at the same places."""
    x, offset = normal(N, S, H, D, dtype=dtype), [3, 40]

    def fused(x):
        return rotate(x, offset, traditional=traditional, heads_first=heads_first)

    by_graph = plain(traditional, heads_first, offset)
    assert mx.array_equal(fused(x), by_graph(x))
    same_gradients(fused, by_graph, [x])
    same_gradients(
        lambda x: mx.grad(lambda x: mx.sum(fused(x) ** 3))(x),
        lambda x: mx.grad(lambda x: mx.sum(by_graph(x) ** 3))(x),
        [x],
    )


def test_the_gradient_of_the_table_is_refused():
    x, table = normal(N, S, H, D), RotationTable(D, POSITIONS, BASE)
    with pytest.raises(NotImplementedError, match=r"^rope: "):
        mx.eval(mx.grad(lambda cos: mx.sum(rope(x, cos, table.sin, 0)))(table.cos))


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 4])
@pytest.mark.parametrize("offset", [7, [7, 30]], ids=str)
def test_vmap_over_x(offset, axis, heads_first):
    same_when_mapped(lambda x: rotate(x, offset, heads_first=heads_first), [normal(N, S, H, D)], (axis,))


@pytest.mark.parametrize("axes", [(None, 0), (0, 0), (2, 1), (0, None)], ids=str)
@pytest.mark.parametrize("offset", [7, [7, 30]], ids=str)
def test_vmap_over_offsets(offset, axes):
    if isinstance(offset, int):
        axes = (axes[0], None if axes[1] is None else 0)
    same_when_mapped(rotate, [normal(N, S, H, D), mx.array(offset)], axes)


def test_compile_and_shapeless_compile():
    compiled = mx.compile(rotate, shapeless=True)
    for length in (1, 5, 40):
        x = normal(N, length, H, D)
        assert mx.array_equal(compiled(x, mx.array(7)), rotate(x, 7))


def test_calls_at_other_positions_are_not_merged():
    x = normal(N, S, H, D)
    table = RotationTable(D, POSITIONS, BASE)

    def twice(x, offset):
        # MLX merges no arrays that are outputs themselves.
        return 2 * rope(x, table.cos, table.sin, offset)

    one, two = mx.compile(lambda x: (twice(x, 7), twice(x, 8)))(x)
    assert mx.array_equal(one, 2 * rotate(x, 7))
    assert mx.array_equal(two, 2 * rotate(x, 8))


TABLE = mx.zeros((POSITIONS, D // 2))
FITTING = {"x": mx.zeros((N, S, H, D)), "cos": TABLE, "sin": TABLE, "offset": 0}


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("x", {"x": mx.zeros((S, H, D))}),
        ("x", {"x": mx.zeros((N, S, H, D), dtype=mx.int32)}),
        ("cos", {"x": mx.zeros((N, S, H, D + 2))}),
        ("cos", {"x": mx.zeros((N, S, H, D - 1))}),
        ("cos", {"cos": TABLE.astype(mx.float16)}),
        ("cos", {"cos": TABLE[0]}),
        ("sin", {"sin": TABLE[1:]}),
        ("sin", {"sin": TABLE[:, 1:]}),
        ("offset", {"offset": -1}),
        ("offset", {"offset": POSITIONS - S + 1}),
        ("offset", {"offset": 2**70}),
        ("offset", {"offset": [0, POSITIONS - S + 1]}),
        ("offset", {"offset": [0]}),
        ("offset", {"offset": []}),
        ("offset", {"offset": [0, 0, 0]}),
        ("offset", {"offset": [[0], [0]]}),
        ("offset", {"offset": 1.0}),
        ("offset", {"offset": True}),
        ("offset", {"offset": "0"}),
        ("offset", {"offset": mx.array([0.0, 1.0])}),
        ("offset", {"offset": mx.array([0])}),
        ("offset", {"offset": mx.array([[0, 0]])}),
        ("offset", {"x": mx.zeros((N, POSITIONS + 1, H, D))}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="rope"):
        rope(**(FITTING | wrong))


def test_the_last_positions_of_the_table_can_be_used():
    check(normal(N, S, H, D), POSITIONS - S)


BEYOND_THE_TABLE = pytest.mark.parametrize(
    "offset", [[0, POSITIONS - S + 1], [-1, 0], [2**31 - 1, 0], POSITIONS], ids=str
)


@BEYOND_THE_TABLE
def test_computed_positions_are_checked_at_the_call(offset):
    with refused("offset", function="rope"):
        rotate(normal(N, S, H, D), mx.array(offset))
    with refused("offset", function="rope"):
        rotate(normal(N, S, H, D), mx.array(offset, dtype=mx.int64))


@BEYOND_THE_TABLE
def test_late_positions_are_checked_when_they_are_evaluated(offset):
    fails_whenever_evaluated(lambda: [rotate(normal(N, S, H, D), mx.array(offset) * 1)], "offset", "rope")
    check(normal(N, S, H, D), 3)  # the worker thread still runs


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^rope: .*gpu"):
        rope(**FITTING, stream=mx.gpu)


@pytest.mark.parametrize("traditional", [False, True])
def test_the_layer_and_its_readable_form_agree(traditional):
    """For every kind of call."""
    layer, x = RoPE(D, POSITIONS, BASE, traditional), normal(N, S, H, D, dtype=mx.float16)
    calls = [
        lambda: layer(x).swapaxes(1, 2),
        lambda: layer(x, slice(7, 7 + S)).swapaxes(1, 2),
        lambda: layer(x, [slice(7, 7 + S), slice(30, 30 + S)]).swapaxes(1, 2),
        lambda: layer.heads_first(x, 7),
        lambda: layer.heads_first(x, [7, 30]),
    ]
    for call in calls:
        fast = call()
        with graph_of("tiny_llm.positional_encoding"):
            assert mx.array_equal(fast, call())
    assert mx.array_equal(layer.heads_first(x, 7), layer(x, slice(7, 7 + S)).swapaxes(1, 2))
