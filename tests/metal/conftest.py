"""These tests need a machine that can run Metal kernels, in this or that way."""

import mlx.core as mx
import pytest

from .harness.toolchain import why_not_here


@pytest.fixture(autouse=True)
def can_run_kernels(request: pytest.FixtureRequest) -> None:
    on_the_gpu = mx.metal.is_available() and request.path.name.startswith("test_host")
    if not on_the_gpu and (reason := why_not_here()):
        pytest.skip(reason)
