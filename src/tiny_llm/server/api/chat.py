"""POST /v1/chat/completions: from its fields to a job."""

from typing import Any, Protocol

import msgspec

from ...loading.errors import LoadError
from ..door import Tokenizer
from ..errors import ApiError, bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import ChatFields
from .form import ChoicesForm
from .grammar import read_grammar
from .job import Form, Job, check_choices, check_logprobs, engine_request, new_id, read_stream
from .lengths import check_chars
from .messages import read_messages
from .outputs import CHAT_STREAM, CHAT_WHOLE, ChatChoice, Choice
from .pieces import END_OF_THINK, THINK, AnswerReader
from .sampling import answer_limit, read_sampling
from .tools import forced_calls, is_forced, read_tools

TEMPLATE_SWITCHES = {"enable_thinking"}


class ChatForm(Form, Protocol):
    """A form whose choices are made of the pieces of a text."""

    def new_choice(self, index: int, tokenizer: Tokenizer, reader: AnswerReader) -> Choice: ...


class ChatChoicesForm(ChoicesForm):
    def new_choice(self, index: int, tokenizer: Tokenizer, reader: AnswerReader) -> Choice:
        return ChatChoice(index, tokenizer, reader)


def prepare_chat(
    fields: ChatFields, model: ServedModel, settings: Settings, form: ChatForm | None = None
) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop.

    Other interfaces, whose requests were made to `fields`, have a `form` of their own.
    """
    check_choices(fields, 1, settings)
    stream, include_usage = read_stream(fields)
    form = form or ChatChoicesForm(CHAT_WHOLE, CHAT_STREAM, include_usage, "chatcmpl")
    logprobs = read_logprobs(fields, settings)
    grammar = read_grammar(fields)
    thinking = read_thinking(fields, model)
    tools = read_tools(fields, model, settings)
    if tools and is_forced(fields):
        if grammar is not None:
            raise bad_value("tool_choice", "auto or none beside a grammar for the answer")
        grammar = forced_calls(fields, tools)
    text = render(fields, model, thinking, tools, settings)
    inside = text.rstrip().endswith(THINK)
    if grammar is not None and (thinking or inside):  # the grammar is for what comes after the reasoning
        grammar = grammar.after("" if inside else THINK, END_OF_THINK)
    tokenizer = model.tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    asked, param = fields.max_tokens, "max_tokens"
    if fields.max_completion_tokens is not None:
        asked, param = fields.max_completion_tokens, "max_completion_tokens"
    if asked == 0:
        raise bad_value(param, "at least 1")
    limit = answer_limit(asked, param, len(ids), model.engine.context, None)
    sampling = read_sampling(fields, limit, tokenizer.vocab_size, settings)
    one_call = fields.parallel_tool_calls is False
    readers = [AnswerReader(thinking, inside, bool(tools), one_call) for _ in range(fields.n or 1)]
    job_id = new_id(form.id_prefix)
    return Job(
        model=model,
        requests=[engine_request(fields, ids, sampling, logprobs, grammar, job_id)],
        choices=[form.new_choice(index, tokenizer, reader) for index, reader in enumerate(readers)],
        form=form,
        stream=stream,
        prompt_tokens=len(ids),
        id=job_id,
    )


def read_logprobs(fields: ChatFields, settings: Settings) -> int | None:
    check_logprobs(fields.top_logprobs, "top_logprobs", settings)
    if fields.top_logprobs and not fields.logprobs:
        raise bad_value("top_logprobs", "logprobs to be true")
    return (fields.top_logprobs or 0) if fields.logprobs else None


def read_thinking(fields: ChatFields, model: ServedModel) -> bool:
    """The one switch of templates that requests may set."""
    switches = fields.chat_template_kwargs or {}
    for name, value in switches.items():
        param = f"chat_template_kwargs.{name:.64}"
        if name not in TEMPLATE_SWITCHES:
            raise unsupported(param, f"expected one of {', '.join(sorted(TEMPLATE_SWITCHES))}")
        if not isinstance(value, bool):
            raise bad_value(param, "true or false")
    wanted = bool(switches.get("enable_thinking", False))
    if wanted and not model.takes_thinking:
        raise unsupported(
            "chat_template_kwargs.enable_thinking", "the model's chat template has no such switch"
        )
    return wanted


def render(
    fields: ChatFields,
    model: ServedModel,
    thinking: bool,
    tools: list[dict[str, Any]] | None,
    settings: Settings,
) -> str:
    """The prompt that the model's chat template makes of the messages."""
    messages = read_messages(fields.messages)
    # Templates may drop space, and what an answer had before its end of thinking.
    kept = [message["content"].strip() for message in messages if message["role"] != "assistant"]
    check_chars("messages", kept, model, settings)
    if sum(len(message["content"]) for message in messages) > settings.max_prompt_chars:
        raise ApiError(
            400,
            f"messages: expected at most {settings.max_prompt_chars} characters",
            param="messages",
            code="context_length_exceeded",
        )
    if tools is not None and len(msgspec.json.encode(tools)) > settings.max_prompt_chars:
        raise bad_value("tools", f"at most {settings.max_prompt_chars} characters")
    options: dict[str, Any] = {"enable_thinking": thinking}
    if tools:
        options["tools"] = tools
    try:
        text = model.tokenizer.apply_chat_template(messages, **options)
    except LoadError as error:
        raise ApiError(400, f"messages: {error}", param="messages", code="chat_template") from error
    check_chars("messages", [text], model, settings)
    return text
