"""Products with dense and packed weights equal the float64 oracle on random legal calls."""

import math

import mlx.core as mx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tiny_llm.runtime.extension import load_extension

from ..support.cases import DTYPES, normal
from ..support.native import active_isa, assert_forced_isa, available_isas
from ..support.processes.child import assert_tests_pass
from ..support.products import quantized
from ..support.products.linear import assert_product
from ..support.products.rounding import assert_within, exactly, gated, normalised, plus, product
from ..support.rows import LAYOUTS as OTHER_LAYOUTS

pytestmark = pytest.mark.usefixtures("on_the_cpu")
native = load_extension()
TRY = settings(max_examples=100)
MORE = settings(TRY, max_examples=250)  # for more parameters


def unchanged(x):
    return x


def inside(x):
    """A view of the same values inside a larger array; each value around them would spoil a sum."""
    other = mx.nan if mx.issubdtype(x.dtype, mx.floating) else 2**32 - 1
    return mx.pad(x, [(1, 2)] * x.ndim, constant_values=other)[(slice(1, -2),) * x.ndim]


LAYOUTS = st.sampled_from([unchanged, inside, *OTHER_LAYOUTS])
# Up to 8, 16, 20 or 32 rows, depending on the instruction set, share one pass over the weights; more rows
# share unpacked weights.
ROWS = st.one_of(st.sampled_from([*range(1, 12), 16, 17, 20, 21, 32, 33]), st.integers(0, 70))
SHAPES = st.one_of(ROWS.map(lambda M: (M,)), st.sampled_from([(), (2, 3), (4, 1), (1, 9), (0, 3), (2, 1, 5)]))
# A dense product is divided among threads from 200 000 multiply-adds on, a packed one from a million.
OUTPUTS = st.one_of(st.integers(1, 40), st.sampled_from([47, 48, 49, 64, 97, 130, 300]))
DEPTHS = st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 127, 129, 255, 257, 513, 1000]))
GROUPS = st.integers(1, 6)
# The outputs of matrices that share x, and whether the first of two gates the second.
MATRICES = st.one_of(
    st.tuples(st.lists(OUTPUTS, min_size=1, max_size=3), st.just(False)),
    st.tuples(OUTPUTS.map(lambda N: [N, N]), st.just(True)),
)
# Outputs are split into heads of the greatest size that divides this number and all outputs; all divide 0.
SPLITS = st.none() | st.integers(0, 64)
TYPES = st.sampled_from(DTYPES)
# Type of the norm's weight and its epsilon, or no norm; the large epsilon is as large as the mean square.
NORMS = st.none() | st.tuples(TYPES, st.sampled_from([1e-6, 0.7]))
FORMATS = st.fixed_dictionaries(
    {"group_size": st.sampled_from([32, 64, 128]), "bits": st.sampled_from([4, 8]), "dtype": TYPES}
)
SEEDS = st.integers(0, 1000)


def assume_a_size(outputs):
    """Errors are relative to the largest output, and a single output may cancel to nearly 0."""
    assume(outputs != 1)


def arrays(weights, layout):
    """Words, scales and biases in this layout."""
    return layout(weights.words), layout(weights.scales), layout(weights.biases)


@TRY
@given(ROWS, OUTPUTS, DEPTHS, TYPES, st.booleans(), LAYOUTS, LAYOUTS, SEEDS)
def test_a_dense_product_equals_the_oracle(M, N, K, dtype, biased, x_layout, w_layout, seed):
    assume_a_size(M * N)
    x, w = normal(M, K, dtype=dtype, seed=seed), normal(N, K, dtype=dtype, seed=seed + 1)
    bias = normal(N, dtype=dtype, seed=seed + 2) if biased else None
    laid_out = None if bias is None else w_layout(bias)
    assert_product(native.linear(x_layout(x), w_layout(w), laid_out), x, w, bias)


@TRY
@given(ROWS, OUTPUTS, GROUPS, FORMATS, LAYOUTS, LAYOUTS, SEEDS)
def test_a_quantized_product_equals_the_oracle(M, N, groups, format, x_layout, w_layout, seed):
    assume_a_size(M * N)
    K = groups * format["group_size"]
    x = normal(M, K, dtype=format["dtype"], seed=seed)
    weights = quantized.packed(N, K, **format, seed=seed + 1)
    words, scales, biases = arrays(weights, w_layout)
    out = native.quantized_matmul(
        scales, biases, format["group_size"], format["bits"], x_layout(x), words, True
    )
    quantized.assert_product(out, x, weights)


@MORE
@given(
    SHAPES, MATRICES, GROUPS, FORMATS, st.booleans(), st.booleans(), NORMS, SPLITS, LAYOUTS, LAYOUTS, SEEDS
)
def test_quantized_layers_equal_the_oracle(
    shape, matrices, groups, format, biased, residual, norm, split, x_layout, w_layout, seed
):
    """Any combination of biases, norm, and one of heads, gate and residual."""
    (outputs, has_gate), K, dtype = matrices, groups * format["group_size"], format["dtype"]
    assume_a_size(math.prod(shape) * min(outputs))
    x = normal(*shape, K, dtype=dtype, seed=seed)
    weights = [quantized.packed(N, K, **format, seed=seed + i) for i, N in enumerate(outputs, start=1)]

    options = {"gated": has_gate}
    given = exactly(x)
    if norm is not None:
        weight, eps = normal(K, dtype=norm[0], seed=seed + 8), norm[1]
        given = normalised(x, weight, eps)
        options["norm"] = (w_layout(weight), eps)
    want = [product(given, w, dtype) for w in weights]
    if biased:
        biases = [normal(N, dtype=dtype, seed=seed + i) for i, N in enumerate(outputs, start=4)]
        want = [plus(y, bias) for y, bias in zip(want, biases, strict=True)]
        options["bias"] = [w_layout(bias) for bias in biases]
    if has_gate:
        want = [gated(*want, dtype)]
    heads = [(N,) for N in outputs[: len(want)]]
    if split is not None and not has_gate:
        options["split"] = math.gcd(split, *outputs)
        heads = [(N // options["split"], options["split"]) for N in outputs]
    elif residual and len(want) == 1:
        added = normal(*shape, outputs[0], dtype=dtype, seed=seed + 9)
        want = [plus(want[0], added)]
        options["residual"] = x_layout(added)

    laid_out = [arrays(w, w_layout) for w in weights]
    results = native.quantized_linear(x_layout(x), laid_out, format["group_size"], format["bits"], **options)
    for y, last_axes, expected in zip(results, heads, want, strict=True):
        assert y.shape == (*shape, *last_axes)
        assert_within(y.reshape(expected.value.shape), expected, dtype)


def test_the_instruction_set_is_the_forced_one():
    assert_forced_isa()


@pytest.mark.slow
@pytest.mark.parametrize("isa", [isa for isa in available_isas() if isa != active_isa()])
def test_each_other_instruction_set(isa, monkeypatch):
    """The same calls in a process of its own, because a process chooses its instruction set once."""
    monkeypatch.setenv("TINY_LLM_CPU_ISA", isa)
    assert_tests_pass(__file__, "oracle or forced")
