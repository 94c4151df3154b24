"""All instruction sets of this machine agree with the oracle on the same random calls."""

import mlx.core as mx
import pytest
from hypothesis import given, settings

from ..support import native
from ..support.attention.check import compare, expected
from .strategies import problems

pytestmark = pytest.mark.usefixtures("on_the_cpu")


@settings(max_examples=150)
@given(problems())
def test_instruction_sets_agree(problem):
    q, k, v, options = problem
    want = expected(q, k, v, **options)
    for isa in native.available_isas():
        out, lse = native.attention(q, k, v, **options, isa=isa)
        mx.eval(out, lse)
        if out.size:
            assert native.last_run()["isa"] == isa
        compare(out, lse, q, k, v, want, **options)
