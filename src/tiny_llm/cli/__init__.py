"""The command `tiny-llm`: each subcommand is a module that adds its flags and says what to run."""

import argparse
from collections.abc import Sequence

from . import info


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="tiny-llm", description="FlashAttention for MLX, and a course on it."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    info.add_command(commands)
    options = parser.parse_args(argv)
    code: int = options.run(options)
    return code
