"""Kernel tests run on one instruction set: the one named by TINY_LLM_CPU_ISA, or the best of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from ..support.native import DEVICE, assert_forced_isa


@pytest.fixture(autouse=True, scope="session")
def the_active_instruction_set_is_the_forced_one() -> None:
    assert_forced_isa()


@pytest.fixture(autouse=True)
def every_test_is_on_the_device_under_test() -> Iterator[None]:
    """The CPU back end, or what TINY_LLM_TEST_DEVICE names."""
    with mx.stream(DEVICE):
        yield
