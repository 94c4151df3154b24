"""The fields of requests to /api/chat, /api/generate and /api/show."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..fields import (
    Count,
    Fraction,
    Int64,
    Penalty,
    RepetitionPenalty,
    RequestFields,
    StopString,
    Temperature,
    Tool,
    TopK,
    TopP,
)

LATEST = ":latest"  # what clients add to a name without a tag


class OllamaOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """How an answer is made. Those of the last group choose how Ollama uses its hardware: without effect."""

    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    min_p: Fraction | None = None
    seed: Int64 | None = None
    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    num_ctx: Count | None = None
    stop: StopString | list[StopString] | None = None
    repeat_penalty: RepetitionPenalty | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None

    # Other samplers, of which only the neutral value is accepted.
    tfs_z: float | None = None
    typical_p: float | None = None
    mirostat: int | None = None
    mirostat_eta: float | None = None
    mirostat_tau: float | None = None
    penalize_newline: bool | None = None

    num_keep: int | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    num_thread: int | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    vocab_only: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    embedding_only: bool | None = None


class OllamaModelFields(RequestFields, kw_only=True):
    """A request that names a model."""

    def __post_init__(self) -> None:
        if self.model is not None:
            self.model = self.model.removesuffix(LATEST)


class ShowFields(OllamaModelFields, kw_only=True):
    name: str | None = None  # of older clients, instead of `model`
    verbose: bool | None = None

    def __post_init__(self) -> None:
        self.model = self.model or self.name
        super().__post_init__()


class OllamaFields(OllamaModelFields, kw_only=True):
    """What /api/chat and /api/generate have in common. A model stays loaded, whatever `keep_alive` says."""

    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: bool | str | None = None
    keep_alive: str | float | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None


class OllamaFunctionCall(Struct, kw_only=True):
    name: str
    arguments: dict[str, Any]


class OllamaCall(Struct, kw_only=True):
    function: OllamaFunctionCall
    id: str | None = None


class OllamaMessage(Struct, kw_only=True):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaChat(OllamaFields, kw_only=True):
    messages: list[OllamaMessage] | None = None
    tools: list[Tool] | None = None


class OllamaGenerate(OllamaFields, kw_only=True):
    """`raw` prompts pass by the chat template. Fields of the last group are refused unless they are empty."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None

    images: list[str] | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None
