"""Run the Metal kernels on Linux with every memory access checked: `pdm run test-metal [--full]`.

The full form runs as many tests at a time as this machine has CPUs.
"""

import argparse
import os
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
    chosen = [str(TESTS)]
    if arguments.full:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        chosen += ["-m", "slow or not slow", "-n", str(cpus), "--dist", "worksteal"]
    return pytest.main([*chosen, *for_pytest])


if __name__ == "__main__":
    sys.exit(main())
