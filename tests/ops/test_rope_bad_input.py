"""RoPE refuses odd sizes, positions outside its table, and arguments of wrong types."""

import mlx.core as mx
import pytest

from tiny_llm.positional_encoding import RoPE

from ..support.cases import normal
from ..support.refusal import case_id, refused

ROWS, LENGTH, HEADS, DIMS, POSITIONS = 2, 4, 3, 8, 32
X = (ROWS, LENGTH, HEADS, DIMS)


@pytest.mark.parametrize(
    "changes",
    [
        {"dims": 0},
        {"dims": -2},
        {"dims": 7},
        {"seq_len": 0},
        {"seq_len": -1},
        {"base": 0},
        {"base": -1.0},
        {"base": float("nan")},
        {"base": float("inf")},
    ],
    ids=case_id,
)
def test_impossible_table_sizes_are_refused(changes):
    (argument,) = changes
    with refused(argument, function="RoPE"):
        RoPE(**({"dims": DIMS, "seq_len": POSITIONS} | changes))


@pytest.mark.parametrize(
    "changes", [{"dims": 8.0}, {"dims": "8"}, {"seq_len": 3.5}, {"base": "10000"}], ids=case_id
)
def test_other_types_than_numbers_are_refused(changes):
    (argument,) = changes
    with refused(argument, TypeError, function="RoPE"):
        RoPE(**({"dims": DIMS, "seq_len": POSITIONS} | changes))


@pytest.mark.parametrize("shape", [(), (DIMS,), X[1:], (1, *X), (*X[:3], DIMS + 2)], ids=str)
def test_another_shape_is_refused(shape):
    with refused("x", function="RoPE"):
        RoPE(DIMS, POSITIONS)(normal(*shape))


@pytest.mark.parametrize("x", [[1.0], None], ids=case_id)
def test_other_inputs_than_arrays_are_refused(x):
    with refused("x", TypeError, function="RoPE"):
        RoPE(DIMS, POSITIONS)(x)


def test_integers_are_refused():
    with refused("x", function="RoPE"):
        RoPE(DIMS, POSITIONS)(mx.zeros(X, dtype=mx.int32))


@pytest.mark.parametrize(
    "offset",
    [
        slice(POSITIONS - LENGTH + 1, POSITIONS + 1),
        slice(-LENGTH, None),
        slice(-1, LENGTH - 1),
        slice(0, LENGTH - 1),
        slice(0, 2 * LENGTH, 2),
        slice(LENGTH, 0, -1),
        slice(None, None),
        slice(0.0, 4.0),
        slice("a", "b"),
        [],
        [slice(0, LENGTH)],
        [slice(0, LENGTH)] * (ROWS + 1),
        [slice(0, LENGTH), slice(1, LENGTH)],
        [0, 4],
        (slice(0, LENGTH),) * ROWS,
        4,
        "0:4",
        mx.array([0, 4]),
    ],
    ids=case_id,
)
def test_positions_that_do_not_fit_are_refused(offset):
    with refused("offset", function="RoPE"):
        RoPE(DIMS, POSITIONS)(normal(*X), offset)


def test_the_last_positions_of_the_table_are_within_it():
    rotate = RoPE(DIMS, POSITIONS)
    last = slice(POSITIONS - LENGTH, POSITIONS)
    for same in (slice(last.start, None), [last] * ROWS):
        assert mx.array_equal(rotate(normal(*X), same), rotate(normal(*X), last))
