"""`DecoderBlock` alone: refused arguments, the memory of its caches, and compiled graphs.

tests/models/test_fused_block.py compares its results with those of the layers.
"""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.attention.cached import table_of
from ...support.cases import normal
from ...support.products.quantized import packed
from ...support.refusal import refused

native = load_extension()
HIDDEN, INNER, HEADS, KV_HEADS, SIZE = 128, 192, 4, 2, 32
FORMATS = [(64, 4)] * 4
SHAPES = [
    (HEADS * SIZE, HIDDEN), (KV_HEADS * SIZE, HIDDEN), (KV_HEADS * SIZE, HIDDEN), (HIDDEN, HEADS * SIZE),
    (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER),
]  # fmt: skip


def arrays_of(shapes=SHAPES, norms=2):
    weights = [packed(*shape, seed=i) for i, shape in enumerate(shapes)]
    arrays = [x for w in weights for x in (w.words, w.scales, w.biases)]
    table = table_of(SIZE)
    return [*arrays, *(normal(HIDDEN, seed=i) for i in range(norms)), table.cos, table.sin]


def block_of(arrays=None, *, formats=FORMATS, biased=False, eps=(1e-6, 1e-6), head_size=SIZE):
    return native.DecoderBlock.of(arrays or arrays_of(), list(formats), biased, list(eps), head_size, False)


def cache(capacity=40, dtype=mx.float32):
    keys, values = (normal(1, KV_HEADS, capacity, SIZE, dtype=dtype, seed=seed) for seed in (1, 2))
    mx.eval(keys, values)
    return keys, values


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("formats", {"formats": FORMATS[:3]}),
        ("eps", {"eps": (1e-6,)}),
        ("head_size", {"head_size": 0}),
        ("arrays", {"biased": True}),
        ("arrays", {"arrays": arrays_of()[:-1]}),
    ],
)
def test_wrong_parts(argument, wrong):
    with refused(argument, function="DecoderBlock"):
        block_of(**wrong)


@pytest.mark.parametrize("matrix", range(7))
def test_a_matrix_of_the_wrong_shape(matrix):
    """Any of the matrices, before anything is computed."""
    shapes = [*SHAPES]
    shapes[matrix] = (shapes[matrix][0] + SIZE, shapes[matrix][1] + 64)
    with pytest.raises(ValueError, match=r"^\w+: .+: got .+, expected .+"):
        block_of(arrays_of(shapes))


@pytest.mark.parametrize("place", [21, 22])
def test_norms_of_the_wrong_shape(place):
    arrays = arrays_of()
    arrays[place] = normal(HIDDEN + 1)
    with pytest.raises(ValueError, match=r"^\w+: .+: got .+, expected .+"):
        block_of(arrays)


@pytest.mark.parametrize(
    ("argument", "x"),
    [
        ("x", mx.zeros((1, HIDDEN))),
        ("x", mx.zeros((1, 1, HIDDEN + 32))),
        ("x", mx.zeros((1, 1, HIDDEN), mx.float16)),
    ],
)
def test_a_wrong_input(argument, x):
    with refused(argument, function="DecoderBlock"):
        block_of()(x, [(*cache(), 9)], 9)


@pytest.mark.parametrize(
    ("argument", "caches", "offset"),
    [
        ("caches", [], 9),
        ("caches", [None, None], 9),
        ("length", [(*cache(9), 9)], 9),
        ("keys", [(*cache(dtype=mx.float16), 9)], 9),
        ("length", [(*cache(), 40)], 9),
        ("length", [(*cache(), -1)], 9),
        ("offset", [(*cache(), 9)], -1),
        ("offset", [(*cache(), 9)], [1, 2]),
    ],
)
def test_wrong_caches(argument, caches, offset):
    """They are refused as by `cached_attention`."""
    with refused(argument, function="cached_attention"):
        block_of()(normal(1, 1, HIDDEN), caches, offset)


@pytest.mark.parametrize("place", [0, 21])
def test_arrays_with_another_number_of_axes(place):
    arrays = arrays_of()
    arrays[place] = mx.array(1, arrays[place].dtype)
    with refused("arrays", function="DecoderBlock"):
        block_of(arrays)


def test_an_offset_of_another_kind():
    with refused("offset", function="DecoderBlock"):
        block_of()(normal(1, 1, HIDDEN), [(*cache(), 9)], mx.array(9))


def test_holds():
    arrays = arrays_of()
    block = block_of(arrays)
    assert block.holds(arrays)
    assert not block.holds(arrays[:-1])
    assert not block.holds([*arrays[:3], mx.array(arrays[3]), *arrays[4:]])
    arrays[21][0] = 7
    assert not block.holds(arrays)


def test_traced_arrays_make_no_block():
    arrays = arrays_of()

    def loss(weight):
        assert block_of([*arrays[:21], weight, *arrays[22:]]) is None
        return weight.sum()

    mx.grad(loss)(arrays[21])


def test_a_cache_that_nothing_else_uses_grows_in_place():
    block, x = block_of(), normal(1, 1, HIDDEN)
    keys, values = cache(4000)
    kept, size = mx.array(keys[:, :, :9]), keys.nbytes
    mx.eval(x, kept)
    y, [(keys, values)] = block(x, [(keys, values, 9)], 9)
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(y)
    mx.synchronize()
    assert mx.get_peak_memory() - before < size / 4
    assert mx.array_equal(keys[:, :, :9], kept)


def test_a_cache_in_use_is_copied():
    block, x = block_of(), normal(1, 1, HIDDEN)
    keys, values = cache()
    before = mx.array(keys)
    mx.eval(before)
    _, [(grown, _)] = block(x, [(keys, values, 9)], 9)
    mx.eval(grown)
    assert mx.array_equal(keys, before)
    assert not mx.array_equal(grown, before)


def test_a_compiled_graph_checks_its_inputs():
    block, x = block_of(), normal(2, 1, HIDDEN)

    def run(x, keys, values):
        return block(x, [(keys, values, 9)], 9)[0]

    compiled = mx.compile(run, shapeless=True)
    keys, values = (mx.concatenate([part, part]) for part in cache())
    assert mx.array_equal(compiled(x, keys, values), run(x, keys, values))
    with refused("length", function="cached_attention"):
        mx.eval(compiled(x, keys[:, :, :9], values[:, :, :9]))


def test_forward_mode_and_mapping_are_refused():
    block, x, (keys, values) = block_of(), normal(1, 1, HIDDEN), cache()
    run = lambda x: block(x, [(keys, values, 9)], 9)[0]  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"^DecoderBlock: jvp"):
        mx.jvp(run, [x], [x])
    with pytest.raises(NotImplementedError, match=r"^DecoderBlock: vmap"):
        mx.vmap(run)(mx.stack([x, x]))
