"""Run the Metal kernels on Linux, each of their accesses checked: `pdm run test-metal`, `--full` for all."""

import argparse
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1] / "tests" / "metal"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="also every order of the lanes and every compiler: some minutes"
    )
    arguments, for_pytest = parser.parse_known_args()
    chosen = ["-m", "slow or not slow"] if arguments.full else []
    return pytest.main([str(TESTS), *chosen, *for_pytest])


if __name__ == "__main__":
    sys.exit(main())
