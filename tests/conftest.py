"""Settings of all tests. Nothing may import MLX before TF32 is off."""

import os

# MLX on CUDA reads this once, at its start: TF32 keeps 10 bits of a float32 factor, and the tests ask for 24.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
import pytest


@pytest.fixture(autouse=True)
def seed_mlx() -> None:
    """Every test starts from the same MLX random state, whichever tests ran before it."""
    mx.random.seed(0)
