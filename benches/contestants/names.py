"""Who takes part in `bench peers`, and what a process that runs one of them has to be told."""

from __future__ import annotations

from dataclasses import dataclass

OURS, STEP, BATCH = "ours", "ours, model alone", "ours, 8 sequences"
LLAMA_CPP, MLX_LM = "llama-cpp-python", "mlx-lm"
SEQUENCES = 8


class Missing(Exception):
    """A contestant cannot take part; the text says why."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One process: whose program it runs, on which weights, in which type of activations."""

    program: str  # OURS, LLAMA_CPP or MLX_LM
    model: str
    dtype: str
    threads: int
    context: int  # no sequence grows longer
    file: str = ""  # of llama.cpp
