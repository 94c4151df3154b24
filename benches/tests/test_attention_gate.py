"""The correctness gate of `bench attention` and its float64 oracle."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from benches.cases.attention import Case
from benches.contestants import attention as contestants
from benches.contestants.attention import TOLERANCE, Inputs, gate, oracle
from benches.harness.types import DTYPES, Dtype

SMALL = Case("short", "float32", 4, 2, 24, 24, 16, causal=True)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
def test_mlx_passes_the_gate_and_a_slight_error_does_not(dtype: Dtype, causal: bool) -> None:
    case = replace(SMALL, dtype=dtype, causal=causal)
    inputs = Inputs(case)
    contestant = contestants.mx_fast(case, inputs)
    result = contestant.result(contestant.call())
    checked = gate(case, inputs)
    assert checked.passes(checked.error(result))
    wrong = result.copy()
    wrong[case.L + 5] *= 1 + 3 * TOLERANCE[dtype]
    assert not checked.passes(checked.error(wrong))


@pytest.mark.parametrize("spoil", [np.nan, np.inf])
def test_a_nan_or_an_infinity_never_passes(spoil: float) -> None:
    inputs = Inputs(SMALL)
    result = whole_result(SMALL, inputs)
    checked = gate(SMALL, inputs)
    assert checked.passes(checked.error(result))
    result[0, 0] = spoil
    assert not checked.passes(checked.error(result))
    assert not checked.passes(checked.error(result[1:]))


def whole_result(case: Case, inputs: Inputs) -> np.ndarray:
    return oracle(case, inputs, np.arange(case.L)).astype(np.float32).reshape(-1, case.D)


def test_rows_outside_the_sample_are_compared_with_the_first_result_that_passed() -> None:
    case = Case("f32", "float32", 1, 1, 1500, 1500, 8, causal=True)
    inputs = Inputs(case)
    checked = gate(case, inputs)
    right = whole_result(case, inputs)
    wrong = right.copy()
    unsampled = next(row for row in range(case.L) if row not in checked.rows)
    wrong[unsampled] += 1
    assert checked.passes(checked.error(right))
    assert not checked.passes(checked.error(wrong))


def test_keys_outside_a_window_make_no_difference_to_the_oracle() -> None:
    case = replace(SMALL, group="window", window=3)
    inputs = Inputs(case)
    whole = oracle(case, inputs, np.array([10]))
    far_key = np.array(inputs.key)
    far_key[:, :, 7] = 100.0
    inputs.key = mx.array(far_key)
    np.testing.assert_array_equal(oracle(case, inputs, np.array([10])), whole)


@pytest.mark.peers
def test_pytorch_agrees_in_every_form_of_grouped_heads() -> None:
    for dtype in DTYPES:
        for causal in (True, False):
            case = replace(SMALL, dtype=dtype, causal=causal)
            inputs = Inputs(case)
            contestant = contestants.pytorch(case, inputs, threads=1)
            checked = gate(case, inputs)
            assert checked.passes(checked.error(contestant.result(contestant.call())))
