"""The projections of the layers."""

import mlx.core as mx
from mlx.nn.layers.linear import Linear as MlxLinear

from ..basics import linear


class Linear(MlxLinear):
    """`mlx.nn.Linear`, computed by `tiny_llm.linear`: MLX's own product on a CPU takes many times as long."""

    def __call__(self, x: mx.array) -> mx.array:
        return linear(x, self.weight, self.get("bias"))
