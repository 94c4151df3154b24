"""Kernel tests run on one instruction set: the one named by TINY_LLM_CPU_ISA, or the best of this machine."""

from __future__ import annotations

import os

import pytest

from ..support.native import active_isa, available_isas


@pytest.fixture(autouse=True, scope="session")
def the_active_instruction_set_is_the_forced_one() -> None:
    assert active_isa() == os.environ.get("TINY_LLM_CPU_ISA", available_isas()[0])


@pytest.fixture(autouse=True)
def every_test_is_on_the_cpu(on_the_cpu: None) -> None:
    """What runs here is the CPU back end."""
