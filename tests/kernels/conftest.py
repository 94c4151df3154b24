"""Kernel tests run on one instruction set: the one named by TINY_LLM_CPU_ISA, or the best of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import mlx.core as mx
import pytest

from ..support.native import active_isa, available_isas


@pytest.fixture(autouse=True, scope="session")
def the_active_instruction_set_is_the_forced_one() -> None:
    assert active_isa() == os.environ.get("TINY_LLM_CPU_ISA", available_isas()[0])


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield
