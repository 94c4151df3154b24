"""An engine that a test steps by hand, and whose model is a hash of what it reads through the pages.

A wrong page, a stale key or a wrong position changes the hash, and so the answer.
"""

from __future__ import annotations

import copy
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm import LLM
from tiny_llm.engine import Engine, EngineRequest, Handle
from tiny_llm.engine.steps import Runner, Steps
from tiny_llm.generation.result import TokenLogprobs
from tiny_llm.generation.text import TextStream, end_tokens, new_detokenizer
from tiny_llm.models.packed import Batch, PackedRequest
from tiny_llm.sampling.grammar import start_grammar
from tiny_llm.sampling.rows import RowSampler
from tiny_llm.scheduler import Plan

from .generation.sampled_rows import sample_rows

VOCABULARY = 4096
LETTERS = "abc"  # the most likely tokens: few, so that n-grams repeat, and drafts of them are sometimes right
PAGE_BYTES = 2 * 4  # of each token of a page: a key and a value of one float32


class HashModel:
    """What an engine asks of a model before its first step."""

    vocab_size = VOCABULARY
    precision = mx.float32
    layers_inner = (SimpleNamespace(self_attn=SimpleNamespace(num_kv_heads=1, head_dim=1)),)


@cache
def hash_llm() -> LLM:
    """With the embedded tokenizer."""
    llm = copy.copy(LLM("tiny", dtype="float32"))
    llm.model = HashModel()
    return llm


@cache
def likely_tokens() -> tuple[int, ...]:
    """Letters, and what ends an answer."""
    tokenizer = hash_llm().tokenizer
    return (*(tokenizer.encode(letter)[0] for letter in LETTERS), *sorted(end_tokens(tokenizer)))


def logits_after(token_ids: Sequence[int], positions: Sequence[int] | None = None) -> np.ndarray:
    """[VOCABULARY], from all tokens and their positions."""
    places = range(len(token_ids)) if positions is None else positions
    seen = np.array([token_ids, places], np.float32)
    logits = np.random.default_rng(zlib.crc32(seen.tobytes())).standard_normal(VOCABULARY, np.float32)
    likely = likely_tokens()
    logits[list(likely[: len(LETTERS)])] += 5
    logits[list(likely[len(LETTERS) :])] += 3
    return logits


class HashRunner(Runner):
    """Keys are the tokens, values are their positions; both are in the real storage."""

    during: Callable[[], object] = staticmethod(lambda: None)  # happens while a step is computed
    starts_at_once = True

    def logits(self, plan: Plan, token_ids: mx.array | None = None) -> mx.array:
        storage = self.storage
        storage.copy_pages(plan.copies)
        requests = [PackedRequest(row.token_ids, row.stop, row.pages, row.logits) for row in plan.rows]
        batch = Batch(requests, storage, token_ids=token_ids)
        tokens, positions = batch.token_ids.astype(mx.float32), mx.array(batch.positions, mx.float32)
        storage.write(0, tokens[:, None, None], positions[:, None, None], mx.array(batch.step.slots))
        keys, values = np.array(storage.keys[0]), np.array(storage.values[0])
        self.during()
        rows = []
        for row in plan.rows:
            pages = list(row.pages)
            seen = keys[pages].reshape(-1), values[pages].reshape(-1)
            for stop in range(row.stop - row.logits + 1, row.stop + 1):
                rows.append(logits_after(seen[0][:stop], seen[1][:stop]))
        return mx.array(np.array(rows, np.float32).reshape(len(rows), VOCABULARY))


class SteppedEngine(Engine):
    """Without a thread: `step` makes one step."""

    def _start(self) -> None:
        self._computing = False
        self._thread = threading.current_thread()
        leave = self._mailbox.cancel

        def cancel(handle: Handle) -> None:
            """Reads it at once between two steps."""
            leave(handle)
            if not self._computing:
                self._mailbox.read(self._answers)

        self._mailbox.cancel = cancel  # type: ignore[method-assign]
        self.runner = HashRunner(self.llm.model, self.pool)
        self._steps = Steps(self.llm, self.runner)

    def submit(self, request: EngineRequest) -> Handle:
        handle = super().submit(request)
        self._mailbox.read(self._answers)
        return handle

    def step(self, now: float | None = None) -> bool:
        """Whether there was work. `now` is in the clock of `time.monotonic`."""
        plan = self._plan(time.monotonic() if now is None else now)
        if plan.rows:
            self._computing = True
            self._step(plan)
            self._computing = False
        return bool(plan.rows)

    def check(self) -> None:
        """Raise AssertionError unless pages, queues and answers are consistent."""
        scheduler = self._scheduler
        scheduler.check()
        queued = {*scheduler.running, *scheduler.waiting}
        assert set(self._answers._by_state) == {*queued, *self._answers._taken}
        self._pages.check()


def stepped_engine(num_pages: int, page_size: int, **options: Any) -> SteppedEngine:
    """With so many pages."""
    return SteppedEngine(
        hash_llm(), kv_memory=num_pages * page_size * PAGE_BYTES, page_size=page_size, **options
    )


def answer_alone(
    request: EngineRequest, choice: int
) -> tuple[str, tuple[int, ...], list[TokenLogprobs], str]:
    """Text, tokens, log probabilities and reason of an answer, without an engine and without pages."""
    sampling, tokenizer = request.sampling, hash_llm().tokenizer
    grammar = None if request.grammar is None else start_grammar(tokenizer, request.grammar)
    prompt = list(request.prompt_ids)
    sampler = RowSampler(sampling, sampling.seed or 0, choice, prompt, end_tokens(tokenizer), grammar)
    stream, early, text, logprobs = TextStream(new_detokenizer(tokenizer)), "", "", []
    reason = None
    while reason is None:
        logits = mx.array(logits_after([*prompt, *sampler.tokens]))[None]
        (drawn,) = sample_rows(logits, [sampler], [request.logprobs])
        assert drawn.error is None
        sampler.accept([drawn.token_id])
        logprobs.append(TokenLogprobs(drawn.token_id, drawn.logprob or 0.0, drawn.top))
        if drawn.token_id in sampler.ending_tokens:
            reason = "stop"
            break
        piece = stream.add(drawn.token_id)
        if len(sampler.tokens) <= sampling.min_tokens:  # no stop string counts there
            early += piece
        else:
            text += piece
        if any(stop in text for stop in sampling.stop):
            reason = "stop"
        elif len(sampler.tokens) == sampling.max_tokens:
            reason = "length"
    text += stream.finish()
    for stop in sampling.stop:
        if stop in text:
            text, reason = text[: text.index(stop)], "stop"
    return early + text, tuple(sampler.tokens), logprobs if request.logprobs is not None else [], reason
