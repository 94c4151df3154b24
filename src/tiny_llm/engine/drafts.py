"""Drafts: from the text itself, by what followed its newest tokens before; and by a small model.

Summaries, edits and quotations repeat their prompt. Several tokens of one request cost less than as many
steps, because a step reads all weights anyway.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from ..checks.types import check_type
from ..errors import ArgumentError, calling
from ..generation.loaded import LoadedModel, load_llm
from ..generation.text import check_vocabularies, check_vocabulary_sizes
from ..models.cpu_block import block_matrices
from ..models.weights import arrays_of
from ..runtime.device import on_device
from ..runtime.gpu import default_attention

NGRAM = 3  # tokens that must be the same
# How many tokens are drafted: few at first, more after each step in which all were right. With the decoded
# token they fill the rows that kernels multiply together: on a CPU without AMX, two rows of qwen2-0.5b take
# 1.2 times as long as one, four 2.4, eight 3.5 and nine 5.3.
LENGTHS = (1, 3, 7)
MOST_DRAFTS = LENGTHS[-1]
MOST_INDEXED = 2048  # tokens in one step: a long prompt must not delay the others
# After some wrong drafts in a row, a request waits before it tries again.
PATIENCE = 2
FIRST_STEPS_OFF = 4  # the next time twice as many
MOST_STEPS_OFF = 64

# Of a small model.
DRAFT_TOKENS = 4
MOST_DRAFT_TOKENS = 16
WEIGHT = 0.25  # of the newest step in the mean gain
FIRST_GAIN = 1.0  # tokens; some wrong drafts must not end the first try
LATER_GAIN = 0.5
# Steps to wait after drafts that did not pay, doubled each time.
FIRST_PAUSE = 8
MOST_PAUSE = 256


class PromptLookup:
    """The drafts of one answer; it tries fewer and less often where they are wrong."""

    def __init__(self, ngram: int = NGRAM, most_drafts: int = MOST_DRAFTS):
        self._ngram = ngram
        self._most_drafts = most_drafts
        self._length = 0  # of LENGTHS
        self._last_end: dict[tuple[int, ...], int] = {}  # where an n-gram ended the last time
        self._indexed = 0  # tokens whose n-grams are in it
        self._misses = 0
        self._off = 0  # steps to wait
        self._next_off = FIRST_STEPS_OFF

    @property
    def pauses(self) -> bool:
        """Whether the next call of `propose` gives no drafts, whatever the text."""
        return self._off > 0

    def propose(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Up to `most_drafts` tokens that may follow; none where nothing is known."""
        size, total = self._ngram, len(token_ids)
        stop = min(total, self._indexed + MOST_INDEXED)
        for end in range(max(self._indexed, size), stop):  # all but the newest n-gram
            self._last_end[tuple(token_ids[end - size : end])] = end
        self._indexed = stop
        if self._off > 0:
            self._off -= 1
            return ()
        if total < size:
            return ()
        found = self._last_end.get(tuple(token_ids[total - size :]))
        if found is None:
            return ()
        count = min(LENGTHS[self._length], self._most_drafts)
        # A text that ends with a repetition goes on with it.
        return list(islice(cycle(token_ids[found : found + count]), count))

    def learn(self, drafted: int, accepted: int) -> None:
        """After a step that verified drafts: how many were right."""
        if drafted == 0:
            return
        if accepted == drafted:
            self._length = min(self._length + 1, len(LENGTHS) - 1)
        elif 2 * accepted < drafted:
            self._length = 0
        if accepted > 0:
            self._misses, self._next_off = 0, FIRST_STEPS_OFF
            return
        self._misses += 1
        if self._misses >= PATIENCE:
            self._misses, self._off = 0, self._next_off
            self._next_off = min(2 * self._next_off, MOST_STEPS_OFF)


def draft_llm(draft: LoadedModel | str, llm: LoadedModel, context: int, draft_tokens: int) -> LoadedModel:
    """The model that drafts for `llm`, loaded like it if it is given by name."""
    if draft_tokens > MOST_DRAFT_TOKENS:
        raise ArgumentError("Engine", "draft_tokens", draft_tokens, f"at most {MOST_DRAFT_TOKENS}")
    check_type("Engine", "draft", draft, LoadedModel | str, "an LLM or its name")
    if isinstance(draft, str):
        with on_device(llm.device):
            draft = load_llm(draft, llm.model.precision, llm.device, enable_flash_attn=default_attention())
    if draft.device != llm.device:
        raise ArgumentError("Engine", "draft", f"a model on the {draft.device}", f"one on the {llm.device}")
    with calling("Engine", draft_tokenizer="draft", draft_model="draft"):
        check_vocabularies("", draft.tokenizer, llm.tokenizer)
        check_vocabulary_sizes("", draft.model, llm.model)
    if draft.context < context:
        expected = f"at least {context}, that of the engine (max_context)"
        raise ArgumentError("Engine", "draft", f"a context of {draft.context}", expected)
    return draft


def relative_cost(draft: Any, model: Any) -> float:
    """The time of a step of `draft` in steps of `model`: a step of a few tokens reads all weights once."""
    return _bytes_of(draft) / _bytes_of(model)


def _bytes_of(model: Any) -> int:
    last = model.embedding.weight if model.w_lm_head is None else model.w_lm_head
    matrices = [last, *(matrix for block in model.layers_inner for matrix in block_matrices(block))]
    return sum(array.nbytes for matrix in matrices for array in arrays_of(matrix))


class ModelDrafts:
    """Decides, for one answer, in which steps the draft model is asked.

    most: drafts of a step. cost: of a step of the small model, in steps of the large one.
    """

    def __init__(self, most: int, cost: float):
        self._most, self._cost = most, cost
        self._gain = FIRST_GAIN  # accepted drafts less what they cost, of a step
        self._pause = 0
        self._next_pause = FIRST_PAUSE

    def fork(self) -> "ModelDrafts":
        """Those of another answer to the same prompt."""
        return ModelDrafts(self._most, self._cost)

    def propose(self) -> Sequence[int]:
        """Placeholders for the drafts of the next step; none where they do not pay."""
        if self._pause > 0:
            self._pause -= 1
            return ()
        return [0] * self._most

    def learn(self, drafted: int, accepted: int) -> None:
        """After a step that verified drafts: how many were right."""
        if drafted == 0:
            return
        gain = accepted - (drafted + 1) * self._cost  # one more step computes the keys of the last draft
        if gain > 0:
            self._next_pause = FIRST_PAUSE
        self._gain += WEIGHT * (gain - self._gain)
        if self._gain < 0:
            self._gain = LATER_GAIN
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, MOST_PAUSE)
