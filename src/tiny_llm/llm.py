"""The Python API to a model: load it by name, then generate, chat or stream."""

import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Unpack, overload

import mlx.core as mx

from .checks.arrays import dtype_name
from .checks.types import check_function, check_size, check_type, kind
from .course.model import load_model
from .errors import ArgumentError, ArgumentTypeError, UnsupportedError, calling
from .generate import stream_generate
from .generation.batching import run_batch
from .generation.defaults import LLM_BATCH_SIZE, MAX_TOKENS, prefill_chunk
from .generation.messages import Message, render_prompt
from .generation.options import FORMAT, Options, ResponseFormat
from .generation.request import Request
from .generation.result import Result
from .generation.stream import Stream, complete, complete_each
from .generation.text import (
    answer_limit,
    check_sampling,
    check_vocabularies,
    check_vocabulary_sizes,
    encode_prompt,
)
from .loading.progress import Progress
from .runtime.device import AUTO, activation_dtype, device_name, on_device
from .runtime.gpu import default_attention
from .sampling.grammar import Grammar, read_response_format, start_grammar
from .sampling.params import GREEDY, Sampling


class LLM:
    """A language model, loaded by name.

        llm = LLM("tiny")
        llm.chat("What is FlashAttention?").text

    `name` is as on the command line: "tiny" (built in), a shortcut such as "qwen2-0.5b", a name on the
    Hugging Face hub, a folder, or "random:SHORTCUT". A model that cannot be loaded is a `LoadError`; one
    that does not fit into the memory of the GPU, with its prompt and answer, is an `OutOfMemoryError`.

    dtype: type of the activations: "float32", "float16", "bfloat16" or "auto", the fastest of the device.
    device: "cpu" or "gpu"; "auto" is the GPU if MLX has one. If it is not MLX's default device, it is made
        the default, for all threads of the process, while this model computes.
    context: maximum number of tokens of prompt and answer together; None is the model's own limit.
    offline: do not use the network.
    draft_model: the name of a small model with the same vocabulary, for speculative decoding: greedy answers
        stay the same up to rounding, sampled ones keep their distribution.
    progress: called while loading, with the name of the task, the amount done and the total.

    A model may be used from any thread, and from several concurrently.
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
            check_size("LLM", "context", context, minimum=2)
        if progress is not None:
            check_function("LLM", "progress", progress)
        self.name = str(name)
        self.device = device_name("LLM", device)
        precision = activation_dtype("LLM", dtype, self.device)
        self.dtype = dtype_name(precision)

        def load(name: str | Path) -> tuple[Any, Any]:
            model, checkpoint = load_model(
                name,
                precision,
                offline=offline or None,
                progress=progress,
                enable_flash_attn=default_attention(),
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

    @property
    def has_draft_model(self) -> bool:
        """Whether answers use speculative decoding."""
        return self._draft is not None

    @overload
    def generate(
        self,
        prompts: str,
        sampling: Sampling = ...,
        *,
        batch_size: int | None = ...,
        **options: Unpack[Options],
    ) -> Result: ...

    @overload
    def generate(
        self,
        prompts: list[str] | tuple[str, ...],
        sampling: Sampling = ...,
        *,
        batch_size: int | None = ...,
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
        response_format: ResponseFormat | None = None,
        batch_size: int | None = None,
    ) -> Result | list[Result]:
        """Continue a text as it is, without a chat template; use `chat` for questions to a chat model.

        A text gives a `Result`. A list gives a list of them in the same order; up to `batch_size` prompts (by
        default 8) are processed together, by continuous batching. With a draft model they are processed one
        after the other, and another `batch_size` than 1 is refused.

        sampling: how tokens are chosen; the default always takes the most probable one.
        max_tokens, stop: limits of the answer; they override those of `sampling` unless they are None, and an
            empty `stop` removes its stop strings. Without a limit an answer ends after 1024 tokens.
        logprobs: also return the log probability of each token, and this many most probable tokens at its
            position.
        response_format: the form of the answer: a JSON schema (a dict), or a `Grammar` for a regular
            expression and more. The answer has this form if it ends by itself (`finish_reason` "stop"):

                schema = {"enum": ["yes", "no"]}
                json.loads(llm.generate("Is water wet?", response_format=schema).text)
        """
        with calling("LLM.generate", prompt="prompts", **FORMAT):
            if batch_size is not None:
                check_size("", "batch_size", batch_size)
                if self._draft is not None and batch_size != 1:
                    one_by_one = "1 with a draft model: prompts are answered one after the other"
                    raise UnsupportedError("", "batch_size", batch_size, one_by_one)
            sampling = self._limited(sampling, max_tokens, stop)
            if isinstance(prompts, str):
                return complete(self._start(prompts, sampling, logprobs, response_format))
            prompt_ids = self._encode(prompts)
            if self._draft is not None:  # speculative decoding has no batches
                streams = (self._start(each, sampling, logprobs, response_format) for each in prompts)
                return complete_each(streams)
            grammar = None if response_format is None else read_response_format(response_format)
            check_sampling("", sampling, self._models, grammar)
            if grammar is not None:
                start_grammar(self.tokenizer, grammar)  # it is refused before anything is computed
            size = batch_size or LLM_BATCH_SIZE
            return self._answer_all(prompts, prompt_ids, sampling, logprobs, grammar, size)

    def chat(
        self,
        messages: str | Sequence[Message],
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        response_format: ResponseFormat | None = None,
        enable_thinking: bool = False,
    ) -> Result:
        """Answer a conversation, rendered by the model's chat template.

        messages: dictionaries with "role" ("system", "user", "assistant") and "content", the oldest first; or
            a text, the message of the user. A model without a template is a `LoadError`.
        enable_thinking: let a model that supports it, such as Qwen3, write its reasoning before the answer.

        The other arguments are those of `generate`.
        """
        with calling("LLM.chat", prompt="messages", **FORMAT):
            sampling = self._limited(sampling, max_tokens, stop)
            text = render_prompt("", self.name, self.tokenizer, messages, enable_thinking)
            return complete(self._start(text, sampling, logprobs, response_format))

    def stream(
        self,
        prompt: str | Sequence[Message],
        sampling: Sampling = GREEDY,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        response_format: ResponseFormat | None = None,
        enable_thinking: bool = False,
    ) -> Stream:
        """Stream an answer: a text is continued as by `generate`, messages are answered as by `chat`."""
        with calling("LLM.stream", messages="prompt", **FORMAT):
            sampling = self._limited(sampling, max_tokens, stop)
            check_type("", "enable_thinking", enable_thinking, bool, "a bool")
            if not isinstance(prompt, str):
                text = render_prompt("", self.name, self.tokenizer, prompt, enable_thinking)
                return self._start(text, sampling, logprobs, response_format)
            if enable_thinking:
                raise ArgumentError("", "enable_thinking", True, "False: a text is continued as it is")
            return self._start(prompt, sampling, logprobs, response_format)

    def _start(
        self, prompt: str, sampling: Sampling, logprobs: int | None, response_format: ResponseFormat | None
    ) -> Stream:
        generation = stream_generate(
            self.model,
            self.tokenizer,
            prompt,
            sampling=sampling.with_seed(),
            draft_model=self._draft,
            logprobs=logprobs,
            context=self.context,
            response_format=response_format,
        )
        return Stream(generation, self.device)

    def _encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """The checked ids of each prompt."""
        if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
            raise ArgumentTypeError("", "prompts", kind(prompts), "a str or a list of str")
        prompt_ids = []
        for index, prompt in enumerate(prompts):
            with calling("", argument=f"prompts[{index}]"):
                prompt_ids.append(encode_prompt("", self._models, self.tokenizer, prompt, self.context))
        return prompt_ids

    def _answer_all(
        self,
        prompts: Sequence[str],
        prompt_ids: list[list[int]],
        sampling: Sampling,
        logprobs: int | None,
        grammar: Grammar | None,
        batch_size: int,
    ) -> list[Result]:
        arrival_time = time.perf_counter()

        def make_request(index: int) -> Request:
            ids = prompt_ids[index]
            return Request(
                self.model,
                self.tokenizer,
                prompts[index],
                prefill_chunk(),
                index,
                sampling=sampling.with_seed(),
                logprobs=logprobs,
                limit=answer_limit(self._models, len(ids), sampling.max_tokens, self.context),
                prompt_ids=ids,
                arrival_time=arrival_time,
                grammar=grammar,
            )

        with on_device(self.device):
            requests = run_batch(self.model, len(prompts), make_request, self.context, batch_size)
        return [request.result for request in requests]

    def _limited(
        self, sampling: Sampling, max_tokens: int | None, stop: str | Sequence[str] | None
    ) -> Sampling:
        """`sampling` with the limits of the call, and with one in any case."""
        check_type("", "sampling", sampling, Sampling, "a Sampling")
        limited = sampling.with_limits(max_tokens, stop)
        return limited.with_limits(limited.max_tokens or MAX_TOKENS, None)
