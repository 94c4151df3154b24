"""The library's door to a model: load it by name, then generate, chat or stream."""

import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import mlx.core as mx

from .checks.types import check_function, check_size, check_type, kind
from .course.model import load_model
from .errors import ArgumentError, ArgumentTypeError, NumericError, calling
from .generate import PREFILL_STEP, stream_generate
from .generation.batching import answer_all
from .generation.messages import Message, write_conversation
from .generation.request import Request
from .generation.result import Result
from .generation.stream import Stream
from .generation.text import (
    answer_limit,
    check_vocabularies,
    check_vocabulary_sizes,
    encode_prompt,
)
from .loading.progress import Progress
from .runtime.device import AUTO, activation_dtype, device_name, dtype_name, on_device
from .sampling.params import GREEDY, Sampling

MAX_TOKENS = 1024  # of an answer for which nobody says how long it may be
BATCH_SIZE = 8


class Options(TypedDict, total=False):
    """What may be asked of each answer, by name."""

    max_tokens: int | None
    stop: str | Sequence[str] | None
    logprobs: int | None


class LLM:
    """A language model, loaded by its name and ready to answer.

        llm = LLM("tiny")
        llm.chat("What is FlashAttention?").text

    `name` is as on the command line: "tiny" (ships inside), a shortcut such as "qwen2-0.5b", a name on the
    Hugging Face hub, a folder, or "random:SHORTCUT". What cannot be loaded is a `LoadError`.

    dtype: type of the activations, "float32", "float16" or "bfloat16"; "auto" is the one that the device is
        fastest in.
    device: "cpu" or "gpu"; "auto" is the GPU where MLX has one. Another than MLX's default device is that one
        while something is computed, for all threads of the process; then the default is what it was.
    context: the most tokens of prompt and answer together; None for what the model was made for.
    offline: never use the network.
    draft_model: the name of a small model with the same vocabulary, which guesses ahead: greedy answers stay
        the same but for rounding, others as likely.
    progress: called with what is being done while loading, how much is done, and how much there is.

    One model may be used from any thread, also from several at a time.
    """

    def __init__(
        self,
        name: str | Path = "tiny",
        *,
        dtype: str | mx.Dtype = AUTO,
        device: str = AUTO,
        context: int | None = None,
        offline: bool = False,
        draft_model: str | Path | None = None,
        progress: Progress | None = None,
    ):
        for argument, given in (("name", name), ("draft_model", "" if draft_model is None else draft_model)):
            check_type("LLM", argument, given, str | Path, "a str or a Path")
        check_type("LLM", "offline", offline, bool, "a bool")
        if context is not None:
            check_size("LLM", "context", context, least=2)
        if progress is not None:
            check_function("LLM", "progress", progress)
        self.name = str(name)
        self.device = device_name("LLM", device)
        precision = activation_dtype("LLM", dtype, self.device)
        self.dtype = dtype_name(precision)

        def load(name: str | Path) -> tuple[Any, Any]:
            model, checkpoint = load_model(
                name, precision, offline=offline or None, progress=progress, enable_flash_attn=True
            )
            return model, checkpoint.tokenizer

        with on_device(self.device):
            self.model, self.tokenizer = load(name)
            self._models = [self.model]
            self._draft: Any = None
            if draft_model is not None:
                self._draft, draft_tokenizer = load(draft_model)
                with calling("LLM", draft_tokenizer="draft_model"):
                    check_vocabularies("", draft_tokenizer, self.tokenizer)
                    check_vocabulary_sizes("", self._draft, self.model)
                self._models.append(self._draft)
        names = [self.name, str(draft_model)][: len(self._models)]
        lengths = [model.mlx_model.args.max_position_embeddings for model in self._models]
        longest, shortest = min(zip(lengths, names, strict=True), key=itemgetter(0))
        if context is not None and context > longest:
            raise ArgumentError("LLM", "context", context, f"at most {longest}, the context of {shortest}")
        self.context: int = longest if context is None else int(context)

    @overload
    def generate(
        self, prompts: str, sampling: Sampling = ..., *, batch_size: int = ..., **options: Unpack[Options]
    ) -> Result: ...

    @overload
    def generate(
        self,
        prompts: list[str] | tuple[str, ...],
        sampling: Sampling = ...,
        *,
        batch_size: int = ...,
        **options: Unpack[Options],
    ) -> list[Result]: ...

    def generate(
        self,
        prompts: str | Sequence[str],
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> Result | list[Result]:
        """Continue a text as it is. No chat template is applied: `chat` is for questions to a chat model.

        One text gives one result. A list gives a list in its order; up to `batch_size` of them are answered
        together, by continuous batching.

        sampling: how tokens are chosen; by default the most probable one each time.
        max_tokens, stop: where the answer ends at the latest; they go before what `sampling` says unless they
            are None, and an empty `stop` is none. Without any limit an answer ends after 1024 tokens.
        logprobs: tell the log probability of each token, and so many of the most probable ones at its place.
        """
        with calling("LLM.generate", prompt="prompts"):
            check_size("", "batch_size", batch_size)
            sampling = self._settled(sampling, max_tokens, stop)
            if isinstance(prompts, str):
                return _last(self._start(prompts, sampling, logprobs))
            limits = self._limits(prompts, sampling)
            if self._draft is not None:  # guesses are made for one prompt at a time
                return self._answer_each(prompts, sampling, logprobs)
            return self._answer_all(prompts, limits, sampling, logprobs, batch_size)

    def chat(
        self,
        messages: str | Sequence[Message],
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        enable_thinking: bool = False,
    ) -> Result:
        """Answer a conversation, written by the model's chat template.

        messages: dictionaries with "role" ("system", "user", "assistant") and "content", the oldest first; or
            a text, which is what the user says. A model without a template is a `LoadError`.
        enable_thinking: let a model that can do so, such as Qwen3, think aloud before it answers.

        The others are those of `generate`.
        """
        with calling("LLM.chat", prompt="messages"):
            sampling = self._settled(sampling, max_tokens, stop)
            text = write_conversation("", self.name, self.tokenizer, messages, enable_thinking)
            return _last(self._start(text, sampling, logprobs))

    def stream(
        self,
        prompt: str | Sequence[Message],
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        enable_thinking: bool = False,
    ) -> Stream:
        """The same in pieces: a text is continued as by `generate`, messages are answered as by `chat`."""
        with calling("LLM.stream", messages="prompt"):
            sampling = self._settled(sampling, max_tokens, stop)
            check_type("", "enable_thinking", enable_thinking, bool, "a bool")
            if not isinstance(prompt, str):
                text = write_conversation("", self.name, self.tokenizer, prompt, enable_thinking)
                return self._start(text, sampling, logprobs)
            if enable_thinking:
                raise ArgumentError("", "enable_thinking", True, "False: a text is continued as it is")
            return self._start(prompt, sampling, logprobs)

    def _start(self, prompt: str, sampling: Sampling, logprobs: int | None) -> Stream:
        generation = stream_generate(
            self.model,
            self.tokenizer,
            prompt,
            sampling=sampling.seeded(),
            draft_model=self._draft,
            logprobs=logprobs,
            context=self.context,
        )
        return Stream(generation, self.device)

    def _limits(self, prompts: Sequence[str], sampling: Sampling) -> list[int]:
        """The most tokens of each answer; a prompt that cannot be answered is refused."""
        if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
            raise ArgumentTypeError("", "prompts", kind(prompts), "a str or a list of str")
        limits = []
        for index, prompt in enumerate(prompts):
            with calling("", argument=f"prompts[{index}]"):
                length = len(encode_prompt("", self._models, self.tokenizer, prompt, self.context))
            limits.append(answer_limit(self._models, length, sampling.max_tokens, self.context))
        return limits

    def _answer_each(self, prompts: Sequence[str], sampling: Sampling, logprobs: int | None) -> list[Result]:
        results, failed = [], False
        for prompt in prompts:
            stream = self._start(prompt, sampling, logprobs)
            try:
                _last(stream)
            except NumericError:
                failed = True
            results.append(stream.result)
        if failed:
            raise NumericError(results)
        return results

    def _answer_all(
        self,
        prompts: Sequence[str],
        limits: list[int],
        sampling: Sampling,
        logprobs: int | None,
        batch_size: int,
    ) -> list[Result]:
        asked = time.perf_counter()

        def begin(index: int) -> Request:
            return Request(
                self.model,
                self.tokenizer,
                prompts[index],
                PREFILL_STEP,
                index,
                sampling=sampling.seeded(),
                logprobs=logprobs,
                limit=limits[index],
                asked=asked,
            )

        with on_device(self.device):
            requests = answer_all(self.model, len(prompts), begin, self.context, batch_size)
        return [request.result for request in requests]

    def _settled(
        self, sampling: Sampling, max_tokens: int | None, stop: str | Sequence[str] | None
    ) -> Sampling:
        """What is asked of an answer, with an end."""
        check_type("", "sampling", sampling, Sampling, "a Sampling")
        asked = sampling.with_ends(max_tokens, stop)
        return asked.with_ends(asked.max_tokens or MAX_TOKENS, None)


def _last(stream: Stream) -> Result:
    """The whole answer."""
    for _ in stream:
        pass
    return stream.result
