"""Our engine in `bench engine`: each method is a sample, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

import mlx.core as mx

from benches.cases.engine import SCHEMA
from tiny_llm import LLM
from tiny_llm.course.model import build_model
from tiny_llm.engine import Engine, EngineRequest, Handle, Timings
from tiny_llm.engine.steps import PendingTokens
from tiny_llm.generate import stream_generate
from tiny_llm.generation.loaded import LoadedModel
from tiny_llm.generation.sequence import SequenceState
from tiny_llm.loading import Checkpoint, load
from tiny_llm.loading.weights.tree import named_parts
from tiny_llm.models.weights import dense_weights
from tiny_llm.sampling.grammar import Grammar, apply_masks, start_grammar
from tiny_llm.sampling.params import Sampling
from tiny_llm_tools.benchmark.clock import Samples

Prompts = Sequence[Sequence[int]]
FIRST_TOKENS = 32  # of a running answer, before anything is measured
QUIET_TOKENS = 64  # after these, without a prompt that comes in


class CheckpointLLM(LLM):
    """The model of a checkpoint in memory, whose weights were changed."""

    def __init__(self, checkpoint: Checkpoint, dtype: str):
        model = build_model(checkpoint, getattr(mx, dtype), enable_flash_attn=True)
        context = checkpoint.config.max_position_embeddings
        LoadedModel.__init__(self, checkpoint.name, model, checkpoint.tokenizer, "cpu", context)
        self.dtype = dtype


def unpacked_llm(name: str, dtype: str) -> CheckpointLLM:
    """The model with the values of its packed matrices as dense ones."""
    checkpoint = load(name)
    for _, part in named_parts(checkpoint.mlx_model):
        if hasattr(part, "scales"):
            part.weight = dense_weights(part, getattr(mx, dtype))
            del part.scales, part.biases
    return CheckpointLLM(checkpoint, dtype)


class GivenPrompt:
    """A tokenizer that knows the tokens of the one prompt."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int]):
        self._tokenizer = tokenizer
        self._prompt = prompt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, **options: Any) -> list[int]:
        return list(self._prompt)


class EngineService:
    """Requests to engines on one model, which differ in their options. No request finds pages of another."""

    def __init__(self, llm: LLM, context: int):
        self._llm = llm
        self._context = min(context, llm.context)
        self._engines: dict[tuple[bool, int | None], Engine] = {}
        self._unpacked: dict[bool, Engine] = {}
        self._ended: list[Timings] = []
        self._runs = 0

    def close(self) -> None:
        """End the engines."""
        for engine in (*self._engines.values(), *self._unpacked.values()):
            engine.close()
        self._engines.clear()
        self._unpacked.clear()

    def answers(
        self, prompts: Prompts, output: int, *, lookup: bool = False, schema: bool = False
    ) -> dict[str, Any]:
        """Requests at once: the time of a token of all, and of those after the last prompt was read."""
        return self._answers(self._engine(lookup), prompts, output, schema)

    def unpacked(self, prompts: Prompts, output: int, *, draft: bool) -> dict[str, Any]:
        """`answers` of the same weights unpacked, with or without the packed model that drafts for them."""
        if not self._unpacked:
            large = unpacked_llm(self._llm.name, self._llm.dtype)
            for small in (None, self._llm):
                engine = Engine(large, max_context=self._context, lookup=False, draft=small)
                self._unpacked[small is not None] = engine
        return self._answers(self._unpacked[draft], prompts, output, False)

    def _answers(self, engine: Engine, prompts: Prompts, output: int, schema: bool) -> dict[str, Any]:
        before = engine.statistics()
        begin = time.perf_counter()
        handles = self._submit(engine, prompts, output, schema)
        first = next(handles[-1])
        read, at_read = time.perf_counter(), engine.statistics()
        tokens = [_tokens(handle) for handle in handles]
        end, after = time.perf_counter(), engine.statistics()
        tokens[-1] = [*first.token_ids, *tokens[-1]]
        mean = (end - begin) / (after.generation_tokens - before.generation_tokens)
        left = after.generation_tokens - at_read.generation_tokens  # 0: this thread came late
        return {
            "tokens": tokens,
            "token": mean,
            "decoded": (end - read) / left if left else mean,
            "drafted": after.drafted_tokens - before.drafted_tokens,
            "accepted": after.accepted_tokens - before.accepted_tokens,
        }

    def chat(self, question: str, again: bool, output: int) -> list[int]:
        """The prompt of a conversation: a question, and, asked `again`, the answer and the question again."""
        asked = {"role": "user", "content": question}
        prompt: list[int] = self._llm.tokenizer.encode(self._llm.tokenizer.apply_chat_template([asked]))
        if not again:
            return prompt
        (answer,) = self.answers([prompt], output)["tokens"]
        said = {"role": "assistant", "content": self._llm.tokenizer.decode(answer)}
        text = self._llm.tokenizer.apply_chat_template([asked, said, asked])
        found: list[int] = self._llm.tokenizer.encode(text)
        return found

    def loop(self, prompts: Prompts, output: int) -> dict[str, Any]:
        """`stream_generate` on one prompt: the time of a token of all, and of those after the first."""
        (prompt,) = prompts
        answer = stream_generate(
            self._llm.model,
            GivenPrompt(self._llm.tokenizer, prompt),
            "the prompt",
            sampling=Sampling(ignore_eos=True, max_tokens=output),
        )
        begin = time.perf_counter()
        for _ in answer:
            pass
        seconds = time.perf_counter() - begin
        first = answer.statistics.time_to_first_token
        tokens = [list(answer.result.token_ids)]
        return {"tokens": tokens, "token": seconds / output, "decoded": (seconds - first) / (output - 1)}

    def steps(self, prompts: Prompts, output: int) -> dict[str, Any]:
        """The median step of answers that all decode: its seconds, and those without a wait for tokens.

        A step lasts from one wait to the next, so everything that the engine's thread does is in it.
        """
        with _waits() as times:
            tokens = [_tokens(handle) for handle in self._submit(self._engine(), prompts, output)]
        middle = times[-3 * output // 4 : -output // 4]  # the last `output` - 1 decode
        steps = [(end - last, begin - last) for (_, last), (begin, end) in pairwise(middle)]
        return {
            "tokens": tokens,
            "step": median(whole for whole, _ in steps),
            "outside": median(part for _, part in steps),
        }

    def gaps(self, prompts: Prompts, *, bounded: bool = True) -> dict[str, Any]:
        """A running answer, and then a prompt that comes in: the gaps between tokens without and beside it.

        `token`: the mean time of all tokens, those of the prompt and of the answer, until the prompt is read.
        """
        prompt, incoming = prompts
        engine = self._engine(step_tokens=None if bounded else self._context)
        self._ended.clear()
        (running,) = self._submit(engine, [prompt], self._context - len(prompt))
        times = _EventTimes(running)
        for _ in range(FIRST_TOKENS):
            times.gap()
        quiet = [times.gap() for _ in range(QUIET_TOKENS)]
        begin = times.latest
        (other,) = self._submit(engine, [incoming], 1)
        beside: list[float] = []
        while not self._ended:
            beside.append(times.gap())
        seconds = times.latest - begin
        running.cancel()
        return {
            "tokens": [[*times.tokens, *_tokens(running)], _tokens(other)],
            "quiet": median(quiet),
            "p99": Samples(tuple(beside)).quantile(0.99),
            "token": seconds / (len(incoming) + len(beside)),
        }

    def first_tokens(self, prompts: Prompts, output: int) -> dict[str, Any]:
        """Seconds to the first token of two requests that begin alike, one after the other."""
        seconds, tokens = [], []
        salt = f"alike {self._runs}"
        for prompt in prompts:
            begin = time.perf_counter()
            (handle,) = self._submit(self._engine(), [prompt], output, salt=salt)
            first = next(handle)
            seconds.append(time.perf_counter() - begin)
            tokens.append([*first.token_ids, *_tokens(handle)])
        return {"tokens": tokens, "first": seconds[0], "second": seconds[1]}

    def error(self, prompts: Prompts, answers: Prompts, *, schema: bool = False) -> float:
        """How far the answers are from the greedy ones of the model alone.

        The model reads a prompt with its answer. Before each token, its best logit is that of the token, or
        higher: the largest distance, relative to the standard deviation of the logits.
        """
        pairs = zip(prompts, answers, strict=True)
        return max(self._error(prompt, answer, schema) for prompt, answer in pairs)

    def _error(self, prompt: Sequence[int], answer: Sequence[int], schema: bool) -> float:
        sequence = SequenceState(self._llm.model)
        logits = sequence.forward(mx.array([*prompt, *answer[:-1]]))[len(prompt) - 1 :].astype(mx.float32)
        spread = mx.std(logits, axis=-1)
        if schema:
            state = start_grammar(self._llm.tokenizer, Grammar.json_schema(SCHEMA))
            masks = []
            for token in answer:
                masks.append(state.allowed())
                state.accept([token])
            logits = apply_masks(logits, masks)
        chosen = mx.take_along_axis(logits, mx.array(list(answer))[:, None], axis=-1).squeeze(-1)
        found: Any = ((logits.max(axis=-1) - chosen) / spread).max().item()
        sequence.close()
        return float(found)

    def _engine(self, lookup: bool = False, step_tokens: int | None = None) -> Engine:
        if (lookup, step_tokens) not in self._engines:
            engine = Engine(self._llm, max_context=self._context, step_tokens=step_tokens, lookup=lookup)
            engine.observe(self._ended.append)
            self._engines[lookup, step_tokens] = engine
        return self._engines[lookup, step_tokens]

    def _submit(
        self, engine: Engine, prompts: Prompts, output: int, schema: bool = False, salt: str | None = None
    ) -> list[Handle]:
        self._runs += 1
        sampling = Sampling(ignore_eos=not schema, max_tokens=output)
        grammar = Grammar.json_schema(SCHEMA) if schema else None
        salt = f"run {self._runs}" if salt is None else salt
        return [
            engine.submit(EngineRequest(prompt_ids=prompt, sampling=sampling, grammar=grammar, salt=salt))
            for prompt in prompts
        ]


def _tokens(handle: Handle) -> list[int]:
    """All tokens of the one answer, which has to end as expected."""
    tokens: list[int] = []
    for event in handle:
        tokens += event.token_ids
        if event.finish_reason not in (None, "length", "cancelled"):
            raise RuntimeError(f"an answer ended by {event.finish_reason}") from event.error
    return tokens


class _EventTimes:
    """When the events of a handle come."""

    def __init__(self, handle: Handle):
        self._handle = handle
        self.tokens: list[int] = []
        self.latest = 0.0
        self.gap()

    def gap(self) -> float:
        """Seconds from the latest event to the next."""
        self.tokens += next(self._handle).token_ids
        before, self.latest = self.latest, time.perf_counter()
        return self.latest - before


@contextmanager
def _waits() -> Iterator[list[tuple[float, float]]]:
    """Begin and end of each wait for the tokens of a step within the block."""
    times: list[tuple[float, float]] = []
    wait = PendingTokens.results

    def timed(pending: PendingTokens) -> Any:
        begin = time.perf_counter()
        tokens = wait(pending)
        times.append((begin, time.perf_counter()))
        return tokens

    PendingTokens.results = timed  # type: ignore[method-assign]
    try:
        yield times
    finally:
        PendingTokens.results = wait  # type: ignore[method-assign]
