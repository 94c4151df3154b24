"""Backends: one interface for generating text, for the engine, the loops of the course, and mlx-lm.

What is printed of an answer and of its backend is here, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from ..chat.session import SessionEngine
from ..engine import EngineRequest
from ..engine.batch import make_requests, starter
from ..engine.stream import Stream
from ..errors import AnswerError, NoChatTemplate, calling
from ..generate import stream_generate
from ..generation.batching import run_batch
from ..generation.defaults import MAX_TOKENS
from ..generation.generation import Generation
from ..generation.loaded import LoadedModel
from ..generation.messages import render_prompt
from ..generation.options import FORMAT
from ..generation.request import Request
from ..generation.result import Result
from ..generation.text import encode_prompt, ids_of
from ..loading.progress import Progress
from ..runtime.kernel_cache import kernel_cache
from ..sampling.grammar import Grammar
from ..sampling.params import Sampling
from .exit_codes import Refusal, naming_flags
from .progress import PrefillReporter, prefill_progress

Answer = Stream | Generation  # pieces of text, and their `result`
Messages = Sequence[dict[str, str]]
ATTENTION = {True: "flash attention", "mlx": "attention of MLX", False: "grouped attention"}


class Backend(ABC):
    """A loaded model with its tokenizer.

    `description` has the fields of the JSON output; `context` is the maximum number of tokens of prompt and
    answer together.
    """

    def __init__(self, tokenizer: Any, description: dict[str, Any], context: int):
        self.tokenizer = tokenizer
        self.description = description
        self.context = context

    @abstractmethod
    def generate(
        self, prompt: str, sampling: Sampling, progress: Progress, grammar: Grammar | None = None
    ) -> Answer:
        """Start an answer to a rendered prompt; ArgumentError for one that does not fit."""

    def keep_prompts(self) -> None:  # noqa: B027 - nothing is kept by default
        """From now on, the beginning of a prompt is not computed again after one that begins alike."""

    def count_tokens(self, prompt: str) -> int:
        return len(ids_of(self.tokenizer, prompt))

    def render(self, messages: Messages, enable_thinking: bool) -> str:
        """The messages as one prompt, by the chat template of the model."""
        model = self.description["model"]
        try:
            with naming_flags("enable_thinking"):
                return render_prompt("", model, self.tokenizer, messages, enable_thinking)
        except NoChatTemplate as error:
            raise Refusal(
                f"--model: {model} has no chat template, so it cannot answer messages; "
                "generate, batch and visualize can continue a text with --raw"
            ) from error


class OurBackend(Backend):
    """One of our models."""

    def __init__(self, llm: LoadedModel, description: dict[str, Any]):
        super().__init__(llm.tokenizer, description, llm.context)
        self.llm, self.model = llm, llm.model


class EngineBackend(OurBackend):
    """Answered by an engine."""

    def __init__(self, llm: LoadedModel, description: dict[str, Any]):
        super().__init__(llm, description)
        self._session: SessionEngine | None = None

    def keep_prompts(self) -> None:
        self._session = SessionEngine(self.llm)

    def generate(
        self, prompt: str, sampling: Sampling, progress: Progress, grammar: Grammar | None = None
    ) -> Stream:
        llm = self.llm
        ids = encode_prompt("", llm.models, self.tokenizer, prompt, self.context)
        with calling("", **FORMAT):
            (request,) = make_requests(llm, [ids], sampling, response_format=grammar)
        request = replace(request, progress=prefill_progress(progress, kernel_cache()))
        if self._session is not None:
            return Stream(request, self._session.running, keeps_engine=True)
        return Stream(request, starter(llm, request))


class CourseBackend(OurBackend):
    """A stage of the course, answered by its loops, with or without a draft model."""

    def generate(
        self, prompt: str, sampling: Sampling, progress: Progress, grammar: Grammar | None = None
    ) -> Generation:
        model, draft = PrefillReporter(self.model, progress), self.llm.draft
        generation = stream_generate(
            model,
            self.tokenizer,
            prompt,
            sampling=sampling.with_limits(sampling.max_tokens or MAX_TOKENS, None),
            draft_model=None if draft is None else draft.model,
            draft_tokenizer=None if draft is None else draft.tokenizer,
        )
        model.total = generation.statistics.prompt_tokens
        return generation

    def answer_all(
        self,
        requests: Sequence[EngineRequest],
        batch_size: int,
        prefill_step: int,
        longest: int,
        finished: Callable[[int, Result], None],
    ) -> None:
        """The answers to a list; `finished` is called as by `engine.batch.answer_all`."""

        def make_request(index: int) -> Request:
            request = requests[index]
            ids, sampling = list(request.prompt_ids), request.sampling
            return Request(
                self.model, self.tokenizer, "", prefill_step, index, sampling=sampling, prompt_ids=ids
            )

        def report(request: Request) -> None:
            finished(request.prompt_idx, request.result)

        try:
            run_batch(self.model, len(requests), make_request, longest, batch_size, report)
        except AnswerError as error:
            for index, result in enumerate(error.results):
                if result.error is not None:
                    finished(index, result)
            raise


def answer_fields(generation: Answer) -> dict[str, Any]:
    """The statistics of an answer, for JSON."""
    result = generation.result
    statistics = result.statistics
    return {
        "finish_reason": result.finish_reason,
        "prompt_tokens": statistics.prompt_tokens,
        "cached_tokens": statistics.cached_tokens,
        "generated_tokens": statistics.generated_tokens,
        "time_to_first_token": statistics.time_to_first_token,
        "prefill_tokens_per_second": statistics.prefill_tokens_per_second,
        "decode_tokens_per_second": statistics.decode_tokens_per_second,
        "peak_memory_bytes": mx.get_peak_memory(),
    }


def statistics_line(generation: Answer) -> str:
    """The same as one line of text."""
    found = answer_fields(generation)
    cached = f" ({found['cached_tokens']} cached)" if found["cached_tokens"] else ""
    parts = [
        f"prompt {found['prompt_tokens']} tokens{cached}, {found['prefill_tokens_per_second']:.0f} tok/s",
        f"answer {found['generated_tokens']} tokens, {found['decode_tokens_per_second']:.1f} tok/s",
        f"first token after {found['time_to_first_token']:.2f} s",
        f"peak memory {found['peak_memory_bytes'] / 1e6:.0f} MB",
    ]
    if found["finish_reason"] == "length":
        parts.append("stopped at the maximum length")
    return " | ".join(parts)


def settings_line(description: dict[str, Any]) -> str:
    """Model, loader, attention, type and device, as one line."""
    parts = [description["model"], description["solution"]]
    if description["loader"] is not None:
        parts.append(description["loader"])
    if description["flash_attention"] is not None:
        parts.append(ATTENTION[description["flash_attention"]])
    if description["draft_model"] is not None:
        parts.append(f"draft model {description['draft_model']}")
    where = "on the GPU" if description["device"] == "gpu" else "on the CPU"
    if not mx.is_available(mx.gpu):
        where += " (MLX found no GPU)"
    return ", ".join([*parts, description["dtype"], where])
