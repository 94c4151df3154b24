"""One sequence of a model with its caches, and single steps of a model."""

from typing import Any

import mlx.core as mx

from .protocols import CachedModel, LayerCache


class SequenceState:
    """One sequence of a model: its KV caches, and `offset`, the number of tokens in them.

    Use it with `closing`, so that the pages of the caches are returned on every exit.
    """

    def __init__(self, model: CachedModel):
        self.model = model
        self.cache: list[Any] = model.create_kv_cache()
        self.offset = 0

    def forward(self, ids: mx.array) -> mx.array:
        """Run the model on the next `ids` [L]; return their logits [L, V]."""
        logits = self.model(ids[None], self.offset, self.cache)[0]
        self.offset += ids.size
        return logits

    def step(self, ids: mx.array) -> mx.array:
        """Run the model on the next `ids` [L]; return the logits [1, V] of the last."""
        logits = next_logits(self.model, ids[None], self.offset, self.cache)
        self.offset += ids.size
        return logits

    def prefill(self, prompt: list[int], step: int) -> mx.array:
        """Run the model on `prompt` in chunks of `step` tokens; return the last logits [1, V]."""
        ids = mx.array(prompt)
        last = (len(prompt) - 1) // step * step
        for start in range(0, last, step):
            self.step(ids[start : start + step])  # its logits are never evaluated
            eval_caches(self.cache)
        return self.step(ids[last:])

    def starts_ahead(self) -> bool:
        """Whether a step may be started while the previous one is being computed."""
        may = getattr(self.model, "starts_ahead", None)
        return may is not None and bool(may(self.cache))

    def rewind(self, n: int) -> None:
        """Remove the newest `n` tokens."""
        if n:
            for layer in self.cache:
                layer.rewind(n)
            self.offset -= n

    def close(self) -> None:
        """Return what the caches hold of shared storage."""
        for layer in self.cache:
            layer.release()


def next_logits(model: Any, inputs: mx.array, *where: Any) -> mx.array:
    """The logits [B, V] of the last token of each row; with `model.next_logits` no others are computed."""
    if hasattr(model, "next_logits"):
        logits: mx.array = model.next_logits(inputs, *where)
        return logits
    return model(inputs, *where)[:, -1]  # type: ignore[no-any-return]


def eval_caches(cache: list[LayerCache]) -> None:
    """Evaluate keys and values, so that the activations of a chunk are freed."""
    mx.eval([layer.storage for layer in cache])
