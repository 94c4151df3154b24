"""POST /v1/chat/completions: from its fields, which those of other interfaces are made to, to a job."""

from ..errors import bad_value
from ..models import ServedModel
from ..settings import Settings
from .chat_encoder import ChoicesEncoder
from .fields import ChatFields
from .grammar import constrain_calls, is_forced, read_grammar, read_tools
from .job import AnswerEncoder, Job
from .pieces import END_OF_THINK, THINK, AnswerReader
from .prompt import read_prompt
from .sampling import answer_limit, check_choices, check_logprobs, engine_request, new_id, read_stream


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
