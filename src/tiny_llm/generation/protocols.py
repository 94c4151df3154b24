"""The interfaces of models, caches and tokenizers that generation needs; mlx-lm's tokenizers fit, too."""

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

CREATE_KV_CACHE = "create_kv_cache"  # the method of models with KV caches


class FullContextModel(Protocol):
    """A model without a cache: all ids [B, L] -> logits [B, L, V].

    Models of both kinds may have `next_logits`, with the same arguments: only the logits [B, V] of the last
    tokens.
    """

    def __call__(self, inputs: mx.array) -> mx.array: ...


class LayerCache(Protocol):
    """The keys and values of one layer; `storage` has the arrays that hold them."""

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None: ...

    def rewind(self, n: int) -> None: ...

    def release(self) -> None: ...


class CachedModel(Protocol):
    """A model with a cache: new ids [B, L] from position `offset` on -> logits [B, L, V].

    Optional: `starts_ahead(cache)`, whether a step may be started while the previous one is being computed.
    """

    def __call__(self, inputs: mx.array, offset: int | list[int], cache: list[Any]) -> mx.array: ...

    def create_kv_cache(self) -> list[Any]: ...


def has_kv_cache(model: object) -> bool:
    """Whether a model is a `CachedModel`, not a `FullContextModel`."""
    return hasattr(model, CREATE_KV_CACHE)


class DetokenizerProtocol(Protocol):
    """Text that grows with each token id. Optional: `finalize()`, which ends the text."""

    def reset(self) -> None: ...

    def add_token(self, token: int) -> None: ...

    @property
    def text(self) -> str: ...


class TokenizerProtocol(Protocol):
    """Text to ids and back. Optional: `eos_token_ids`, a set, and `get_vocab()`."""

    def encode(self, text: str, add_special_tokens: bool = ...) -> Sequence[int]: ...

    @property
    def eos_token_id(self) -> int: ...

    @property
    def detokenizer(self) -> Any: ...
