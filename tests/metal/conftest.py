"""These tests need a machine that can run Metal kernels, in this or that way."""

import pytest

from .harness.toolchain import why_not_here


@pytest.fixture(autouse=True)
def can_run_kernels() -> None:
    if reason := why_not_here():
        pytest.skip(reason)
