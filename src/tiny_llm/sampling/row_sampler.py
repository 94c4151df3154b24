"""What the sampler of a batch knows about one answer."""

import hashlib
import itertools
import struct
from collections.abc import Callable, Iterable, Sequence

import mlx.core as mx

from ..errors import ArgumentError
from .draw import draw_at
from .grammar import GrammarState
from .params import Sampling
from .processors import logits_processors

Sampler = Callable[[mx.array], mx.array]

DRAW, ACCEPT, PROPOSE = 0, 1, 2  # what a number of `RowSampler.uniform` is for


class RowSampler:
    """How the next token of one answer is chosen: parameters, seed, and the tokens of the answer so far.

    The state is a function of the arguments and the accepted tokens, and the draw of a token is one of seed,
    choice and index of the token; so an answer is the same alone, in a batch, and when it is continued from
    its tokens. `choice` numbers the answers to one prompt; `end_tokens` are those of the model.
    """

    def __init__(
        self,
        sampling: Sampling,
        seed: int,
        choice: int,
        prompt_ids: Sequence[int],
        end_tokens: Iterable[int],
        grammar: GrammarState | None = None,
    ):
        if grammar is not None and sampling.ignore_eos:
            raise ArgumentError("RowSampler", "ignore_eos", True, "False with a grammar")
        self.sampling = sampling
        self.tokens: list[int] = []
        self.grammar = grammar
        self.ending_tokens = sampling.ending_tokens(end_tokens)
        self._seed = seed
        self._choice = choice
        self._processors = logits_processors(
            sampling, len(prompt_ids), self.ending_tokens if grammar is None else ()
        )
        self._prompt = mx.array(list(prompt_ids), mx.int32) if self._processors else None
        self.has_processors = bool(self._processors)
        self.changes_logits = self.has_processors or grammar is not None
        self.is_plain = sampling.temp == 0 and not self.changes_logits  # a plain argmax

    def accept(self, tokens: Sequence[int]) -> None:
        """Add the next tokens of the answer."""
        if self.grammar is not None:
            self.grammar.accept(tokens)
        self.tokens += tokens

    def fork(self, choice: int) -> "RowSampler":
        """Another answer that begins with the same tokens and continues with its own draws."""
        other = object.__new__(RowSampler)
        other.__dict__ = self.__dict__ | {"tokens": list(self.tokens), "_choice": choice}
        other.grammar = None if self.grammar is None else self.grammar.copy()
        return other

    def uniform(self, place: int, purpose: int = DRAW) -> float:
        """A number in [0, 1) for the token that follows `place` further ones."""
        return uniform_number(self._seed, self._choice, len(self.tokens) + place, purpose)

    def process(self, logits: mx.array, drafts: Sequence[int]) -> mx.array:
        """`logits` [1, V] after penalties and biases, as if the answer went on with `drafts`."""
        if self._prompt is not None:
            tokens = mx.concatenate([self._prompt, mx.array([*self.tokens, *drafts], mx.int32)])
            for processor in self._processors:
                logits = processor(tokens, logits)
        return logits

    def masks(self, drafts: Sequence[int]) -> list[bytes | None]:
        """What the grammar allows after 0, 1, ... of `drafts`; None after a draft that it does not allow."""
        if self.grammar is None:
            return [None] * (len(drafts) + 1)
        valid = self.grammar.count_valid(drafts) if drafts else 0
        masks: list[bytes | None] = [None] * (len(drafts) + 1)
        with self.grammar.trying() as state:
            for place in range(valid + 1):
                masks[place] = state.allowed(self._held_back(place))
                if place < valid:
                    state.accept(drafts[place : place + 1])
        return masks

    def mask_after(self, drafts: Sequence[int]) -> bytes | None:
        """The last of `masks`."""
        if self.grammar is None or (drafts and self.grammar.count_valid(drafts) < len(drafts)):
            return None
        with self.grammar.trying() as state:
            state.accept(drafts)
            return state.allowed(self._held_back(len(drafts)))

    def _held_back(self, place: int) -> frozenset[int]:
        """The tokens that may not follow after so many drafts."""
        is_early = len(self.tokens) + place < self.sampling.min_tokens
        return self.ending_tokens if is_early else frozenset()

    def forced(self) -> list[int]:
        """Tokens of the text that must follow by the grammar: good drafts."""
        return [] if self.grammar is None else self.grammar.forced()


def seeded_sampler(sampling: Sampling) -> Sampler:
    """A function from logits [1, V] to ids [1]; call n draws token n as a `RowSampler` with this seed."""
    seed = sampling.seed
    assert seed is not None
    numbers = (uniform_number(seed, 0, index) for index in itertools.count())

    def sample(logits: mx.array) -> mx.array:
        return draw_at(logits, sampling, mx.array([next(numbers)]))

    return sample


def uniform_number(seed: int, choice: int, index: int, purpose: int = DRAW) -> float:
    """A number in [0, 1) for token `index` of answer `choice`."""
    key = struct.pack("<qqqB", seed, choice, index, purpose)
    digest = hashlib.blake2b(key, digest_size=4).digest()
    return (int.from_bytes(digest, "little") >> 8) / 2**24  # exact in float32
