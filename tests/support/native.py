"""The extension under test: its instruction sets, its last run, and the call that chooses among them."""

import os

import mlx.core as mx

from tiny_llm.runtime.extension import load_extension

_extension = load_extension()
attention = _extension.attention
last_run = _extension.last_run
active_isa = _extension.cpu_isa
available_isas = _extension.cpu_isas

# Where the tests of the kernels run. Those that ask for a processor run nowhere else: tools/check_mac.py
# has the list of the others.
DEVICE = {"cpu": mx.cpu, "gpu": mx.gpu}[os.environ.get("TINY_LLM_TEST_DEVICE", "cpu")]


def assert_forced_isa() -> None:
    """What runs is the instruction set named by TINY_LLM_CPU_ISA, or the best of this machine."""
    assert active_isa() == os.environ.get("TINY_LLM_CPU_ISA", available_isas()[0])
