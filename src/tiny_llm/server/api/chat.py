"""POST /v1/chat/completions: from its fields to a job, and how its answers are written.

The fields of other interfaces are made to those of a chat; /v1/completions has the same encoder. The classes
without methods are also the OpenAPI document's: what each answer has; some have more.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from ...engine import Event
from ...generation.result import TokenLogprobs
from ..errors import ApiError, bad_value
from ..models import ServedModel, ServerTokenizer
from ..settings import Settings
from .fields import ChatFields
from .grammar import constrain_calls, is_forced, read_grammar, read_tools
from .job import AnswerEncoder, Choice, Job, ReadChoice, Usage, server_sent
from .pieces import END_OF_THINK, THINK, AnswerReader, Call, Step
from .prompt import read_prompt
from .sampling import answer_limit, check_choices, check_logprobs, engine_request, new_id, read_stream

LOWEST = -9999.0  # JSON has no -inf; OpenAI's answers have this number
DONE = b"data: [DONE]\n\n"
FinishReason = Literal["stop", "length", "tool_calls"]


class CachedTokens(Struct):
    cached_tokens: int


class ReasoningTokens(Struct):
    reasoning_tokens: int


class TokenUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class ChatMessage(Struct):
    role: Literal["assistant"]
    content: str | None


class ChatAnswerChoice(Struct):
    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason


class ChatAnswer(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatAnswerChoice]
    usage: TokenUsage


def prepare_chat(
    fields: ChatFields,
    model: ServedModel,
    settings: Settings,
    encoder: AnswerEncoder | None = None,
    most: int | None = None,
) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop.

    Other interfaces have an `encoder` of their own. `most` is the maximum number of tokens where `fields`
    have none; fewer if the context has less room.
    """
    check_choices(fields, 1, settings)
    stream, include_usage = read_stream(fields)
    encoder = encoder or ChoicesEncoder("chat.completion", "chat.completion.chunk", include_usage, "chatcmpl")
    check_logprobs(fields.top_logprobs, "top_logprobs", settings)
    if fields.top_logprobs and not fields.logprobs:
        raise bad_value("top_logprobs", "logprobs to be true")
    grammar = read_grammar(fields)
    if fields.continue_final_message and (grammar is not None or is_forced(fields)):
        raise bad_value("messages", "no final message to continue beside a format or a required call")
    tools = read_tools(fields, model, settings)
    if tools:
        grammar = constrain_calls(fields, tools, grammar)
    prompt = read_prompt(fields, tools, model, settings)
    if grammar is not None and (prompt.thinking or prompt.inside):  # it is for what follows the reasoning
        grammar = grammar.after("" if prompt.inside else THINK, END_OF_THINK)
    asked, param = fields.max_tokens, "max_tokens"
    if fields.max_completion_tokens is not None:
        asked, param = fields.max_completion_tokens, "max_completion_tokens"
    limit = answer_limit(asked, param, len(prompt.ids), model.engine.context, most)
    one_call = fields.parallel_tool_calls is False
    job_id = new_id(encoder.id_prefix)
    logprobs = (fields.top_logprobs or 0) if fields.logprobs else None
    request = engine_request(fields, prompt.ids, limit, model, job_id, grammar=grammar, logprobs=logprobs)
    return Job(
        model=model,
        requests=[request],
        choices=[
            encoder.new_choice(
                index, model.tokenizer, AnswerReader(prompt.thinking, prompt.inside, bool(tools), one_call)
            )
            for index in range(request.n)
        ],
        encoder=encoder,
        stream=stream,
        prompt_tokens=len(prompt.ids),
        id=job_id,
    )


class ChoicesEncoder(AnswerEncoder):
    """Of the choices of chats and completions: `kind` and `chunk_kind` name an answer and an event."""

    def __init__(self, kind: str, chunk_kind: str, include_usage: bool, id_prefix: str):
        self.id_prefix = id_prefix
        self._kind = kind
        self._chunk_kind = chunk_kind
        self._include_usage = include_usage
        self._tail: dict[str, Any] = {"usage": None} if include_usage else {}

    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> Choice:
        return ChatChoice(index, tokenizer, reader)

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        return server_sent({**_head(job, self._chunk_kind), "choices": [delta], **self._tail})

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        if self._include_usage:
            yield server_sent({**_head(job, self._chunk_kind), "choices": [], "usage": _usage(usage)})
        yield DONE

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        """An error ends a stream without [DONE]."""
        yield server_sent(error.answer())

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        choices = [choice.whole() for choice in job.choices]
        return {**_head(job, self._kind), "choices": choices, "usage": _usage(usage)}


def _head(job: Job, kind: str) -> dict[str, Any]:
    return {"id": job.id, "object": kind, "created": job.created, "model": job.model.name}


def _usage(usage: Usage) -> TokenUsage:
    total = usage.prompt + usage.generated
    details = CachedTokens(usage.cached), ReasoningTokens(usage.reasoning)
    return TokenUsage(usage.prompt, usage.generated, total, *details)


class ChatChoice(ReadChoice):
    def __init__(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader):
        super().__init__(tokenizer, reader)
        self._index = index
        self._begun = False
        self._logprobs: dict[str, Any] | None = None

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        """The role first; then an entry for each piece, the log probabilities with the first one."""
        if not self._begun:
            self._begun = True
            yield self._entry("delta", {"role": "assistant", "content": ""})
        pieces, ended = self._reader.read(event)
        logprobs = None
        if event.logprobs:
            logprobs = chat_logprobs(event.logprobs, self._tokenizer)
            self._logprobs = self._logprobs or {"content": [], "refusal": None}
            self._logprobs["content"] += logprobs["content"]
        steps = [step for piece in pieces for step in self._blocks.add(piece) if step.change == "added"]
        deltas = [self._delta(step) for step in steps]
        if ended is not None:
            self.finish_reason = "tool_calls" if self._blocks.calls and ended == "stop" else ended
        if not deltas and (logprobs or ended):
            deltas = [{}]
        for number, delta in enumerate(deltas):
            first, last = number == 0, number == len(deltas) - 1
            ends = self.finish_reason if last else None
            yield self._entry("delta", delta, logprobs if first else None, ends)

    def whole(self) -> dict[str, Any]:
        content, reasoning = self._blocks.text("text"), self._blocks.text("reasoning")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls := self._blocks.calls:
            message |= {"content": content or None, "tool_calls": [_call(call) for call in calls]}
        return self._entry("message", message, self._logprobs, self.finish_reason)

    def _delta(self, step: Step) -> dict[str, Any]:
        call = step.block.call
        if call is not None:
            return {"tool_calls": [{"index": self._blocks.calls.index(call), **_call(call)}]}
        return {"content" if step.block.kind == "text" else "reasoning_content": step.text}

    def _entry(
        self,
        kind: Literal["delta", "message"],
        said: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> dict[str, Any]:
        return {"index": self._index, kind: said, "logprobs": logprobs, "finish_reason": finish_reason}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def chat_logprobs(entries: Iterable[TokenLogprobs], tokenizer: ServerTokenizer) -> dict[str, Any]:
    """Of a chat completion: each token with its bytes and alternatives."""
    content = []
    for entry in entries:
        top = [_named(token, logprob, tokenizer) for token, logprob in entry.top]
        content.append({**_named(entry.token_id, entry.logprob, tokenizer), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _named(token: int, logprob: float, tokenizer: ServerTokenizer) -> dict[str, Any]:
    written = tokenizer.token_bytes(token)
    return {"token": written.decode(errors="replace"), "logprob": finite(logprob), "bytes": list(written)}


def finite(logprob: float) -> float:
    return logprob if logprob > LOWEST else LOWEST  # NaN, too
