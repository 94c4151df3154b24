"""Random legal calls through the host side of Metal: shapes, options and layouts together."""

import mlx.core as mx
import pytest
from hypothesis import given, settings

from ...property.strategies import problems
from ...support.attention.check import compare
from . import gpu

pytestmark = pytest.mark.usefixtures("metal_device")

TRY = settings(max_examples=60)
TRY_LONG = settings(max_examples=600)


def check(problem):
    inputs = (problem.query, problem.key, problem.value)
    out, lse, record = gpu.attention(*inputs, **problem.options)
    assert record.reports == []
    compare(out, lse, *inputs, **problem.options)


@TRY
@given(problems())
def test_every_call_equals_the_oracle(problem):
    check(problem)


@pytest.mark.slow
@TRY_LONG
@given(problems())
def test_many_more_calls_equal_the_oracle(problem):
    check(problem)


@TRY
@given(problems(dtypes=(mx.float32,)))
def test_the_explained_path_is_taken(problem):
    inputs = (problem.query, problem.key, problem.value)
    arrays = [x for x in problem.options.values() if isinstance(x, mx.array)]
    mx.eval(*inputs, *arrays)
    explanation = gpu.explain(*inputs, **problem.options)
    gpu.attention(*inputs, **problem.options)
    run = gpu.modules()[0].last_run()
    assert (explanation["path"], explanation["splits"]) == (run["path"], run["splits"])
    assert explanation["path"].startswith("metal.")
