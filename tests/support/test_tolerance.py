"""`assert_close` fails on an error just past the tolerance and on a misplaced NaN."""

import mlx.core as mx
import numpy as np
import pytest

from .tolerance import FLOOR, assert_close


def close(actual, expected, floor=1e-3, reference=None):
    assert_close(mx.array(actual), np.array(expected), floor=floor, reference=reference)


def test_an_error_below_the_floor_passes_and_one_above_fails():
    close([1.0009], [1.0])
    with pytest.raises(AssertionError, match=r"allowed 0\.001"):
        close([1.0011], [1.0])


def test_twice_the_error_of_the_reference_passes_and_more_fails():
    close([1.019], [1.0], reference=lambda: mx.array([1.01]))
    with pytest.raises(AssertionError):
        close([1.021], [1.0], reference=lambda: mx.array([1.01]))


def test_a_wrong_reference_does_not_widen_the_tolerance():
    with pytest.raises(AssertionError, match="reference itself"):
        close([3.0], [1.0], reference=lambda: mx.array([3.0]))


@pytest.mark.parametrize("actual", [[np.nan, 0.0], [0.0, np.nan], [np.inf, -np.inf], [0.0, np.inf]])
def test_special_values_must_be_at_the_same_places(actual):
    with pytest.raises(AssertionError):
        close(actual, [0.0, -np.inf])
    close([0.0, -np.inf], [0.0, -np.inf])


def test_a_shape_must_match():
    with pytest.raises(AssertionError):
        close([[1.0]], [1.0])


@pytest.mark.parametrize("dtype", FLOOR, ids=str)
def test_one_element_past_the_floor_of_its_dtype_fails(dtype):
    expected = np.zeros(1000)
    actual = np.zeros(1000)
    actual[777] = 1.1 * FLOOR[dtype]
    with pytest.raises(AssertionError):
        assert_close(mx.array(actual).astype(dtype), expected, floor=FLOOR[dtype])
