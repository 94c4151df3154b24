"""LSE is the log-sum-exp of the scores; results over parts of the keys merge into the result over all."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention, merge_lse, merge_partials

from ...support.attention.check import compare, expected
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv
from ...support.refusal import case_id, refused
from ...support.tolerance import FLOOR, assert_close, to_float64


def part(q, k, v, keys, **options):
    return flash_attention(q, k[..., keys, :], v[..., keys, :], **options, return_lse=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_lse_is_logsumexp_of_the_scores(dtype):
    q, k, v = qkv(heads=2, kv_heads=2, L=33, S=65, E=16, dtype=dtype)
    _, lse = flash_attention(q, k, v, scale=0.5, return_lse=True)
    scores = 0.5 * to_float64(q) @ to_float64(k).swapaxes(-1, -2)
    assert_close(lse, np.log(np.exp(scores).sum(axis=-1)), floor=4 * FLOOR[mx.float32])


@pytest.mark.parametrize("parts", range(2, 9))
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_any_split_of_the_keys_merges_into_the_whole(parts, dtype):
    q, k, v = qkv(L=33, S=131, dtype=dtype)
    cuts = [0, *sorted(np.random.default_rng(parts).integers(0, 132, parts - 1).tolist()), 131]
    pieces = [part(q, k, v, slice(a, b)) for a, b in itertools.pairwise(cuts)]
    for merged in (merge_partials(pieces), merge_partials(pieces[::-1])):
        assert merged[0].dtype == dtype
        assert merged[1].dtype == mx.float32
        want = expected(q, k, v)
        assert_close(merged[0], want.out, floor=2 * FLOOR[dtype])
        assert_close(merged[1], want.lse, floor=4 * FLOOR[mx.float32])


def test_sinks_belong_to_one_part():
    q, k, v = qkv(L=33, S=65)
    sinks = normal(4, seed=5)
    first, second = part(q, k, v, slice(0, 30), sinks=sinks), part(q, k, v, slice(30, 65))
    compare(*merge_lse(*first, *second), q, k, v, sinks=sinks)


def test_merging_commutes():
    q, k, v = qkv(L=33, S=65)
    first, second = part(q, k, v, slice(0, 30)), part(q, k, v, slice(30, 65))
    for a, b in zip(merge_lse(*first, *second), merge_lse(*second, *first), strict=True):
        assert mx.array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_an_empty_side_returns_the_other_bitwise(dtype):
    q, k, v = qkv(L=33, S=65, dtype=dtype)
    whole, nothing = part(q, k, v, slice(0, 65)), part(q, k, v, slice(0, 0))
    for merged in (merge_lse(*whole, *nothing), merge_lse(*nothing, *whole)):
        assert all(mx.array_equal(a, b) for a, b in zip(merged, whole, strict=True))
    out, lse = merge_lse(*nothing, *nothing)
    assert not out.any()
    assert (lse == -mx.inf).all()


def test_empty_rows_on_either_side_beside_full_ones():
    q, k, v = qkv(L=70, S=70)
    early = part(q, k, v, slice(0, 35), mask=mx.tri(70, 35, dtype=mx.bool_))
    late = part(q, k, v, slice(35, 70), mask=mx.tri(70, 35, -35, dtype=mx.bool_))
    compare(*merge_lse(*early, *late), q, k, v, causal=True)


def test_merging_has_a_gradient():
    """The gradient through two merged parts equals that of attention over all keys; it is finite."""
    q, k, v = qkv(L=20, S=20)

    def whole(q, k, v):
        return flash_attention(q, k, v, causal=True).square().sum()

    def in_parts(q, k, v):
        early = part(q, k, v, slice(0, 10), mask=mx.tri(20, 10, dtype=mx.bool_))
        late = part(q, k, v, slice(10, 20), mask=mx.tri(20, 10, -10, dtype=mx.bool_))
        return merge_lse(*early, *late)[0].square().sum()

    for a, b in zip(*(mx.grad(f, argnums=(0, 1, 2))(q, k, v) for f in (whole, in_parts)), strict=True):
        assert mx.allclose(a, b, rtol=1e-4, atol=1e-5)


OUT, LSE = (2, 4, 9, 16), (2, 4, 9)


def halves(**changes):
    """Two parts, with some arrays replaced."""
    arrays = {"o1": normal(*OUT), "lse1": normal(*LSE), "o2": normal(*OUT), "lse2": normal(*LSE)} | changes
    return arrays.values()


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("output", {"o1": normal(*OUT, dtype=mx.float16)}),
        ("output", {"o2": normal(*OUT, dtype=mx.bfloat16)}),
        ("output", {"o1": mx.zeros(OUT, dtype=mx.int32), "o2": mx.zeros(OUT, dtype=mx.int32)}),
        ("output", {"o1": mx.zeros(OUT, dtype=mx.complex64), "o2": mx.zeros(OUT, dtype=mx.complex64)}),
        ("log-sum-exp", {"lse1": normal(*LSE, dtype=mx.float16)}),
        ("log-sum-exp", {"lse2": mx.zeros(LSE, dtype=mx.int32)}),
        ("log-sum-exp", {"lse1": mx.zeros(LSE, dtype=mx.bool_), "lse2": mx.zeros(LSE, dtype=mx.bool_)}),
    ],
    ids=case_id,
)
def test_parts_of_other_types_are_refused(argument, changes):
    one_output, one_lse, *other = halves(**changes)
    with refused(argument, function="merge_lse"):
        merge_lse(one_output, one_lse, *other)
    with refused(argument, function="merge_lse"):
        merge_partials([(one_output, one_lse), tuple(other)])


@pytest.mark.parametrize(
    "changes",
    [
        {"o2": normal(2, 4, 8, 16)},
        {"o2": normal(1, 4, 9, 16)},
        {"lse1": normal(2, 4, 9, 1)},
        {"lse2": normal(2, 4, 8)},
        {"lse1": normal(2, 4, 8), "lse2": normal(2, 4, 8)},
        dict.fromkeys(("o1", "lse1", "o2", "lse2"), mx.array(1.0)),
    ],
    ids=case_id,
)
def test_parts_of_other_shapes_are_refused(changes):
    with pytest.raises(ValueError, match=r"^merge_lse: got outputs .*, expected \(\.\.\., L, E\)"):
        merge_lse(*halves(**changes))


@pytest.mark.parametrize("wrong", [{"o1": [1.0]}, {"lse1": 1.0}, {"o2": None}, {"lse2": "lse"}], ids=case_id)
def test_parts_that_are_not_arrays_are_refused(wrong):
    (argument,) = wrong
    with refused(argument, TypeError, function="merge_lse"):
        merge_lse(*halves(**wrong))


def test_no_parts_are_refused_and_one_is_returned_as_it_is():
    with pytest.raises(ValueError, match=r"^merge_partials: got no parts, expected at least one"):
        merge_partials([])
    out, lse, *_ = halves()
    assert all(a is b for a, b in zip(merge_partials([(out, lse)]), (out, lse), strict=True))


@pytest.mark.parametrize("parts", [[normal(*OUT)], [(normal(*OUT),)], ["ab"]], ids=["array", "one", "text"])
def test_partials_are_pairs(parts):
    with refused("parts", function="merge_partials"):
        merge_partials(parts)
