"""POST /v1/chat/completions: from its fields to a job."""

from abc import abstractmethod

from ..errors import bad_value
from ..models import ServedModel
from ..protocols import ServerTokenizer
from ..settings import Settings
from .fields import ChatFields
from .grammar import read_grammar
from .job import (
    AnswerEncoder,
    ChoicesEncoder,
    Job,
    check_choices,
    check_logprobs,
    engine_request,
    new_id,
    read_stream,
)
from .outputs import CHAT_STREAM, CHAT_WHOLE, ChatChoice, Choice
from .pieces import END_OF_THINK, THINK, AnswerReader
from .prompt import read_prompt
from .sampling import answer_limit, read_sampling
from .tools import constrain_calls, is_forced, read_tools


class ChatEncoder(AnswerEncoder):
    """An encoder whose choices are made of the pieces of a text."""

    @abstractmethod
    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> Choice: ...


class ChatChoicesEncoder(ChoicesEncoder, ChatEncoder):
    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> Choice:
        return ChatChoice(index, tokenizer, reader)


def prepare_chat(
    fields: ChatFields,
    model: ServedModel,
    settings: Settings,
    encoder: ChatEncoder | None = None,
    most: int | None = None,
) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop.

    Other interfaces, whose requests were made to `fields`, have an `encoder` of their own. `most` is the
    maximum number of tokens where `fields` have none; fewer if the context has less room.
    """
    check_choices(fields, 1, settings)
    stream, include_usage = read_stream(fields)
    encoder = encoder or ChatChoicesEncoder(CHAT_WHOLE, CHAT_STREAM, include_usage, "chatcmpl")
    logprobs = read_logprobs(fields, settings)
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
    tokenizer = model.tokenizer
    sampling = read_sampling(fields, limit, tokenizer.vocab_size)
    one_call = fields.parallel_tool_calls is False
    readers = [
        AnswerReader(prompt.thinking, prompt.inside, bool(tools), one_call) for _ in range(fields.n or 1)
    ]
    job_id = new_id(encoder.id_prefix)
    return Job(
        model=model,
        requests=[engine_request(fields, prompt.ids, sampling, logprobs, grammar, job_id)],
        choices=[encoder.new_choice(index, tokenizer, reader) for index, reader in enumerate(readers)],
        encoder=encoder,
        stream=stream,
        prompt_tokens=len(prompt.ids),
        id=job_id,
    )


def read_logprobs(fields: ChatFields, settings: Settings) -> int | None:
    check_logprobs(fields.top_logprobs, "top_logprobs", settings)
    if fields.top_logprobs and not fields.logprobs:
        raise bad_value("top_logprobs", "logprobs to be true")
    return (fields.top_logprobs or 0) if fields.logprobs else None
