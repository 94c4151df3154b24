"""Caches kept from one prompt to the next, so that each turn of a chat prefills its new tokens only."""

from collections.abc import Iterator
from itertools import takewhile

from ..errors import ArgumentError
from .protocols import CachedModel
from .tokens import SequenceState, TokenSampler, eval_caches, sequence_tokens


class PromptCache:
    """The KV caches of one model and the ids of the tokens in them.

    A new prompt prefills only what follows the common prefix. One answer at a time: continuing an older
    answer is an ArgumentError. `close()`, or dropping it, returns its pages.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._owner: object = None  # identifies the answer that uses the caches
        self._sequence: SequenceState | None = None

    def reuse(self, prompt: list[int]) -> int:
        """Drop all tokens after the common prefix with `prompt`; return the number of tokens left.

        The last token of the prompt is never among them, because its logits are needed.
        """
        self._owner = None
        pairs = zip(self.ids, prompt[:-1], strict=False)
        self._keep(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return len(self.ids)

    def tokens(
        self, model: CachedModel, prompt: list[int], sampler: TokenSampler, limit: int, *, prefill_step: int
    ) -> Iterator[int]:
        """At most `limit` tokens that follow `prompt`, as from `cached_tokens`."""
        reused = self.reuse(prompt)
        owner = self._owner = object()
        if self._sequence is None:
            self._sequence = SequenceState(model)
        self._sequence.model = model  # the same weights, perhaps in another wrapper
        self.ids = list(prompt)
        source = sequence_tokens(self._sequence, prompt[reused:], sampler, limit, prefill_step=prefill_step)
        consistent = False
        try:
            for token in source:
                self.ids.append(token)
                yield token
                if self._owner is not owner:
                    raise ArgumentError(
                        "PromptCache",
                        "tokens",
                        "an older answer",
                        "the newest: another prompt has reused the cache",
                    )
            consistent = True
        except GeneratorExit:
            consistent = True
            raise
        finally:
            if self._owner is not owner:
                pass  # the caches belong to another answer
            elif consistent:
                self._drop_unfinished()
            else:  # the layers may hold different numbers of tokens
                self.close()

    def close(self) -> None:
        """Drop all tokens and release the caches."""
        if self._sequence is not None:
            self._sequence.close()
        self._sequence = None
        self.ids = []

    def __del__(self) -> None:
        self.close()

    def _drop_unfinished(self) -> None:
        """Drop ids of tokens that are not in the caches, and the token of a step that was started ahead."""
        self._keep(min(len(self.ids), self._offset))
        if self._sequence is not None and self.ids:
            eval_caches(self._sequence.cache)

    def _keep(self, count: int) -> None:
        """Drop all but the first `count` tokens."""
        if self._sequence is not None:
            self._sequence.rewind(self._offset - count)
        self.ids = self.ids[:count]

    @property
    def _offset(self) -> int:
        return 0 if self._sequence is None else self._sequence.offset
