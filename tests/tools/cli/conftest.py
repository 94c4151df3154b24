"""The fixtures of tests/cli, for commands in tiny_llm_tools."""

from ...cli.conftest import Ended, Run, keep_the_device, reports, run

__all__ = ["Ended", "Run", "keep_the_device", "reports", "run"]
