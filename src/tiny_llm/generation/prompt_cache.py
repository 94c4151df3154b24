"""Caches kept from one prompt to the next, so that each turn of a chat prefills its new tokens only."""

from collections.abc import Iterator
from itertools import takewhile

from ..errors import ArgumentError
from .protocols import CachedModel
from .tokens import Chooser, Sequenced, evaluate, sequence_tokens


class PromptCache:
    """The caches of one model and the ids of the tokens in them.

    Of a prompt with the same beginning, only the rest is prefilled. One answer at a time: an answer that is
    continued after another one began raises ArgumentError. `close()`, or dropping it, returns its pages.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._newest: object = None  # a token of the answer that is under way
        self._sequence: Sequenced | None = None

    def reuse(self, prompt: list[int]) -> int:
        """Drop all tokens after the common beginning with `prompt`; return the number of tokens left.

        The last token of the prompt is never among them, because its logits are needed.
        """
        self._newest = None
        pairs = zip(self.ids, prompt[:-1], strict=False)
        self._keep(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return len(self.ids)

    def tokens(
        self, model: CachedModel, prompt: list[int], choose: Chooser, limit: int, *, prefill_step: int
    ) -> Iterator[int]:
        """At most `limit` tokens that follow `prompt`, as from `cached_tokens`."""
        known = self.reuse(prompt)
        this = self._newest = object()
        if self._sequence is None:
            self._sequence = Sequenced(model)
        self._sequence.model = model  # the same weights, perhaps in another wrapper
        self.ids = list(prompt)
        source = sequence_tokens(self._sequence, prompt[known:], choose, limit, prefill_step=prefill_step)
        whole = False
        try:
            for token in source:
                self.ids.append(token)
                yield token
                if self._newest is not this:
                    raise ArgumentError(
                        "PromptCache", "tokens", "an answer that is not the newest", "the newest answer"
                    )
            whole = True
        except GeneratorExit:
            whole = True
            raise
        finally:
            if self._newest is not this:
                pass  # the caches belong to another answer
            elif whole:
                self._settle()
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

    def _settle(self) -> None:
        """Keep the tokens that are in the caches; a step that ran ahead may have added one too many."""
        self._keep(min(len(self.ids), self._offset))
        if self._sequence is not None and self.ids:
            evaluate(self._sequence.cache)

    def _keep(self, count: int) -> None:
        """Drop all but the first `count` tokens."""
        if self._sequence is not None:
            self._sequence.rewind(self._offset - count)
        self.ids = self.ids[:count]

    @property
    def _offset(self) -> int:
        return 0 if self._sequence is None else self._sequence.offset
