"""Which models can be computed so that the bits of a row do not depend on the rows beside it."""

import sys
from typing import Any

from ..errors import ArgumentError
from ..quantize import QuantizedWeights
from ..runtime.extension import cpu_kernels
from ..runtime.gpu import computes_on_gpu
from .cpu_block import block_matrices


def why_not_invariant(model: Any) -> str | None:
    """Why a model cannot be batch invariant on MLX's default device; None if it can."""
    if computes_on_gpu():
        return "a GPU, whose products choose a kernel by the number of rows"
    if model.ranks is not None:
        return "several processes, whose sums have an order for each number of rows"
    native = cpu_kernels(model.precision)
    if native is None:
        return f"no native kernels for {model.precision}: run `pdm run build-ext`"
    head_dim = model.layers_inner[0].self_attn.head_dim
    sizes = [row["head_size"] for row in native.support() if row["backend"] == "cpu"]
    if not any(least <= head_dim <= most for least, most in sizes):
        return f"heads of {head_dim}, for which there is no kernel"
    # On a Mac the products of dense weights are Accelerate's.
    if sys.platform == "darwin" and _has_dense_weights(model):
        return "dense weights on a Mac, whose products are Accelerate's"
    return None


def check_invariant(operation: str, model: Any) -> None:
    """Raise ArgumentError for a model that cannot be batch invariant."""
    problem = why_not_invariant(model)
    if problem is not None:
        raise ArgumentError(operation, "batch_invariant", f"True with {problem}", "False")


def _has_dense_weights(model: Any) -> bool:
    last = model.embedding.weight if model.w_lm_head is None else model.w_lm_head
    matrices = [last, *(matrix for block in model.layers_inner for matrix in block_matrices(block))]
    return not all(isinstance(matrix, QuantizedWeights) for matrix in matrices)
