"""The fixtures of tests/cli, for commands in tiny_llm_tools."""

from ...cli.conftest import Ended, Run, embedded_copy, keep_the_device, reports, run

__all__ = ["Ended", "Run", "embedded_copy", "keep_the_device", "reports", "run"]
