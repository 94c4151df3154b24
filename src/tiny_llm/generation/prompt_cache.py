"""What a model has read, kept from one prompt to the next: a conversation is not read anew for each turn."""

from collections.abc import Iterator
from itertools import takewhile

from ..errors import ArgumentError
from .protocols import CachedModel
from .tokens import Chooser, Sequenced, evaluate, sequence_tokens


class PromptCache:
    """The caches of one model and the ids of the tokens in them.

    A prompt that begins as these do is read from where it differs. One answer at a time may be made with it:
    one that goes on after another was begun fails. Its pages go back to their pool with `close()`, or when it
    is dropped.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._newest: object = None  # what stands for the answer that is being made
        self._sequence: Sequenced | None = None

    def reuse(self, prompt: list[int]) -> int:
        """Forget what does not begin `prompt`; return how many of its tokens need not be read again.

        The last one is always read: the scores behind it are wanted.
        """
        self._newest = None
        pairs = zip(self.ids, prompt[:-1], strict=False)
        self._keep(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return len(self.ids)

    def tokens(
        self, model: CachedModel, prompt: list[int], choose: Chooser, limit: int, *, prefill_step: int
    ) -> Iterator[int]:
        """At most `limit` tokens behind `prompt`, as `cached_tokens` gives them."""
        known = self.reuse(prompt)
        this = self._newest = object()
        if self._sequence is None:
            self._sequence = Sequenced(model)
        self._sequence.model = model  # the same one, perhaps watched by somebody else
        self.ids = list(prompt)
        source = sequence_tokens(self._sequence, prompt[known:], choose, limit, prefill_step=prefill_step)
        whole = False
        try:
            for token in source:
                self.ids.append(token)
                yield token
                if self._newest is not this:
                    raise ArgumentError(
                        "PromptCache", "tokens", "an answer that goes on", "none: another was begun"
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
            else:  # some layers may have read what others have not
                self.close()

    def close(self) -> None:
        """Forget everything."""
        if self._sequence is not None:
            self._sequence.close()
        self._sequence = None
        self.ids = []

    def __del__(self) -> None:
        self.close()

    def _settle(self) -> None:
        """Keep the tokens that are read and known: the last one is not read, but by a step taken in vain."""
        self._keep(min(len(self.ids), self._offset))
        if self._sequence is not None and self.ids:
            evaluate(self._sequence.cache)

    def _keep(self, count: int) -> None:
        """Forget all but the first `count` tokens."""
        if self._sequence is not None:
            self._sequence.rewind(self._offset - count)
        self.ids = self.ids[:count]

    @property
    def _offset(self) -> int:
        return 0 if self._sequence is None else self._sequence.offset
