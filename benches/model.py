"""`pdm bench model`, or `pdm bench` alone: prefill and decode rates of a model, as by `tiny-llm bench`."""

from __future__ import annotations

from collections.abc import Sequence

from benches.harness import machine
from tiny_llm.cli import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the command. Its record also names the commit of this source tree."""
    return run_command("bench", "pdm bench", argv, origin=machine.describe)
