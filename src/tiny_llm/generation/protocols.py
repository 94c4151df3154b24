"""What generation needs of models, caches and tokenizers, whoever made them."""

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx


class FullContextModel(Protocol):
    """A model that reads all tokens at each step: ids [B, L] -> logits [B, L, V].

    Models of both kinds may have `next_logits`: the same for the logits [B, V] behind the last tokens only.
    """

    def __call__(self, inputs: mx.array) -> mx.array: ...


class LayerCache(Protocol):
    """The keys and values of one layer; `storage` is what they lie in."""

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None: ...

    def rewind(self, n: int) -> None: ...

    def release(self) -> None: ...


class CachedModel(Protocol):
    """A model that remembers: new ids [B, L] from position `offset` on -> logits [B, L, V].

    Some have `starts_ahead(cache)`, too: whether a step may be started while the one before is computed.
    """

    def __call__(self, inputs: mx.array, offset: int | list[int], cache: list[Any]) -> mx.array: ...

    def create_kv_cache(self) -> list[Any]: ...


class Detokenizer(Protocol):
    """Text that grows with each token id. Some have `finalize()`, which ends a text, too."""

    def reset(self) -> None: ...

    def add_token(self, token: int) -> None: ...

    @property
    def text(self) -> str: ...


class Tokenizer(Protocol):
    """Text to ids and back. Some have `eos_token_ids`, a set, and `get_vocab()`, too."""

    def encode(self, text: str, add_special_tokens: bool = ...) -> Sequence[int]: ...

    @property
    def eos_token_id(self) -> int: ...

    @property
    def detokenizer(self) -> Any: ...
