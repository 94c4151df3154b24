"""The Python API to a model: load it by name, then generate, chat or stream."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack, overload

import mlx.core as mx

from .checks.arrays import dtype_name
from .checks.types import check_function, check_size, check_type, kind
from .distributed.launch import read_group
from .engine import EngineRequest
from .engine.batch import answer_all, check_list_invariant, make_requests, starter
from .engine.stream import Stream, answer_one
from .errors import ArgumentError, ArgumentTypeError, UnsupportedError, calling
from .generation.defaults import LLM_BATCH_SIZE
from .generation.loaded import LoadedModel, load_llm
from .generation.messages import Message, RawText, render_prompt
from .generation.options import FORMAT, AnswerOptions, ResponseFormat
from .generation.result import Result
from .generation.text import encode_prompt
from .loading.progress import Progress
from .runtime.device import AUTO, activation_dtype, device_name, on_device
from .runtime.extension import load_extension
from .runtime.gpu import default_attention
from .sampling.params import GREEDY, Sampling


class LLM(LoadedModel):
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
    threads: the threads of the CPU kernels: 16 (or "16"), or "16,8" for 16 in prompts and 8 in decoding. One
        setting for all models of the process, as the variable TINY_LLM_THREADS, over which it wins; the last
        one given holds. None leaves it as it is.
    tensor_parallel, pipeline_parallel: divide the model among so many processes: each gets a part of every
        matrix, or some of the layers. One engine, or one call, at a time.
    hostfile: the machines of these processes, as `mlx.launch` takes them; None is this machine.
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
        threads: int | str | None = None,
        tensor_parallel: int | None = None,
        pipeline_parallel: int | None = None,
        hostfile: str | Path | None = None,
        progress: Progress | None = None,
    ):
        for argument, given in (("name", name), ("draft_model", "" if draft_model is None else draft_model)):
            check_type("LLM", argument, given, str | Path, "a str or a Path")
        check_type("LLM", "offline", offline, bool, "a bool")
        if context is not None:
            check_size("LLM", "context", context, minimum=2)
        if progress is not None:
            check_function("LLM", "progress", progress)
        device = device_name("LLM", device)
        precision = activation_dtype("LLM", dtype, device)
        if threads is not None:
            check_type("LLM", "threads", threads, int | str, "an int or a str")
            with calling("LLM"):
                load_extension().set_cpu_threads(str(threads))
        self.dtype = dtype_name(precision)
        hosts = None if hostfile is None else Path(hostfile)
        with calling("LLM", draft_tokenizer="draft_model"), on_device(device):
            loaded = load_llm(
                str(name),
                precision,
                device,
                draft=None if draft_model is None else str(draft_model),
                context=None if context is None else int(context),
                group=read_group(tensor_parallel, pipeline_parallel, hosts),
                threads=None if threads is None else str(threads),
                offline=offline or None,
                progress=progress,
                enable_flash_attn=default_attention(),
            )
        super().__init__(
            loaded.name, loaded.model, loaded.tokenizer, device, loaded.context, loaded.draft, loaded.leader
        )

    @overload
    def generate(
        self,
        prompts: str,
        sampling: Sampling = ...,
        *,
        batch_size: int | None = ...,
        batch_invariant: bool = ...,
        **options: Unpack[AnswerOptions],
    ) -> Result: ...

    @overload
    def generate(
        self,
        prompts: list[str] | tuple[str, ...],
        sampling: Sampling = ...,
        *,
        batch_size: int | None = ...,
        batch_invariant: bool = ...,
        **options: Unpack[AnswerOptions],
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
        batch_invariant: bool = False,
    ) -> Result | list[Result]:
        """Continue a text as it is, without a chat template; use `chat` for questions to a chat model.

        A text gives a `Result`. A list gives a list of them in the same order; up to `batch_size` prompts (by
        default 8) are processed together, by continuous batching.

        sampling: how tokens are chosen; the default always takes the most probable one.
        max_tokens, stop: limits of the answer; they override those of `sampling` unless they are None, and an
            empty `stop` removes its stop strings. Without a limit an answer ends after 1024 tokens.
        logprobs: also return the log probability of each token, and this many most probable tokens at its
            position.
        response_format: the form of the answer: a JSON schema (a dict), or a `Grammar` for a regular
            expression and more. The answer has this form if it ends by itself (`finish_reason` "stop"):

                schema = {"enum": ["yes", "no"]}
                json.loads(llm.generate("Is water wet?", response_format=schema).text)

        batch_invariant: the bits of an answer do not depend on the other prompts, nor on `batch_size`; a text
            alone gets the answer that it gets in a list. Slower; on a CPU, without a draft model.
        """
        with calling("LLM.generate", prompt="prompts", **FORMAT):
            if batch_size is not None:
                check_size("", "batch_size", batch_size)
            check_type("", "batch_invariant", batch_invariant, bool, "a bool")
            if batch_invariant:
                if self.draft is not None:
                    raise UnsupportedError("", "batch_invariant", True, "False with a draft model")
                check_list_invariant(self)
            sampling = self._limited(sampling, max_tokens, stop)
            if isinstance(prompts, str):
                (request,) = self._requests([RawText(prompts)], sampling, logprobs, response_format)
                return self._answer(request, batch_invariant=batch_invariant)
            if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
                raise ArgumentTypeError("", "prompts", kind(prompts), "a str or a list of str")
            texts = [RawText(each) if isinstance(each, str) else each for each in prompts]
            requests = self._requests(texts, sampling, logprobs, response_format, name="prompts[{}]")
            return answer_all(
                self,
                requests,
                batch_size=batch_size or LLM_BATCH_SIZE,
                batch_invariant=batch_invariant,
            )

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
            (request,) = self._requests([text], sampling, logprobs, response_format)
            return self._answer(request)

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
                prompt = render_prompt("", self.name, self.tokenizer, prompt, enable_thinking)
            else:
                prompt = RawText(prompt)
                if enable_thinking:
                    raise ArgumentError("", "enable_thinking", True, "False: a text is continued as it is")
            (request,) = self._requests([prompt], sampling, logprobs, response_format)
            return Stream(request, starter(self, request))

    def _answer(self, request: EngineRequest, **options: bool) -> Result:
        return answer_one(request, starter(self, request, **options))

    def _requests(
        self,
        prompts: Sequence[str],
        sampling: Sampling,
        logprobs: int | None,
        response_format: ResponseFormat | None,
        name: str = "prompt",
    ) -> list[EngineRequest]:
        """The checked requests of the prompts; `name` is what an error calls one of them."""
        prompt_ids = []
        for index, prompt in enumerate(prompts):
            with calling("", argument=name.format(index)):
                prompt_ids.append(encode_prompt("", self.models, self.tokenizer, prompt, self.context))
        return make_requests(self, prompt_ids, sampling, logprobs, response_format)

    def _limited(
        self, sampling: Sampling, max_tokens: int | None, stop: str | Sequence[str] | None
    ) -> Sampling:
        """`sampling` with the limits of the call."""
        check_type("", "sampling", sampling, Sampling, "a Sampling")
        return sampling.with_limits(max_tokens, stop)
