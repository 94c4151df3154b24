"""The extension under test: its attention, its last run, its instruction sets and its device."""

import os

import mlx.core as mx

from tiny_llm.runtime.extension import load_extension

_extension = load_extension()
attention = _extension.attention
last_run = _extension.last_run
attention_reference = _extension.attention_reference
explain_attention = _extension.explain_attention
active_isa = _extension.cpu_isa
available_isas = _extension.cpu_isas

# The device of the kernel tests. Some of them need the CPU; tools/check_mac.py lists those that run on a GPU.
DEVICE = {"cpu": mx.cpu, "gpu": mx.gpu}[os.environ.get("TINY_LLM_TEST_DEVICE", "cpu")]


def assert_forced_isa() -> None:
    """The active instruction set is the one named by TINY_LLM_CPU_ISA, or the best of this machine."""
    assert active_isa() == os.environ.get("TINY_LLM_CPU_ISA", available_isas()[0])
