"""`pdm bench model`, or `pdm bench` alone: the speed of a whole model, as `tiny-llm bench` measures it."""

from __future__ import annotations

from collections.abc import Sequence

from benches.harness import machine
from tiny_llm.cli import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """The command's exit code. Its record also says which commit of this source tree was measured."""
    return run_command("bench", "pdm bench", argv, origin=machine.describe)
