"""POST /v1/completions: from its fields to a job."""

from dataclasses import replace

from ..errors import bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import CompletionFields
from .grammar import read_grammar
from .job import ChoicesEncoder, Job, check_choices, check_logprobs, engine_request, new_id, read_stream
from .outputs import COMPLETION, Choice, CompletionChoice
from .prompt import check_chars
from .sampling import answer_limit, check_ids, context_exceeded, read_sampling

DEFAULT_MAX_TOKENS = 16  # as at OpenAI


def prepare_completion(fields: CompletionFields, model: ServedModel, settings: Settings) -> Job:
    """Encodes the prompts, which takes time: not for the event loop."""
    tokenizer = model.tokenizer
    prompts = read_prompts(fields, model, settings)
    check_choices(fields, len(prompts), settings)
    if fields.best_of is not None and fields.best_of != (fields.n or 1):
        raise unsupported("best_of", "expected the value of n: answers are not ranked")
    stream, include_usage = read_stream(fields)
    check_logprobs(fields.logprobs, "logprobs", settings)
    with_prompt = fields.echo and fields.logprobs is not None
    grammar = read_grammar(fields)
    if fields.max_tokens == 0 and not fields.echo:
        raise bad_value("max_tokens", "at least 1 without echo")
    # An engine has the log probabilities of a prompt with its first token. If none is asked for, `events`
    # drops it.
    asked = 1 if fields.max_tokens == 0 else fields.max_tokens
    encoder = ChoicesEncoder(COMPLETION, COMPLETION, include_usage, "cmpl")
    job_id, choices, requests = new_id(encoder.id_prefix), list[Choice](), []
    context = model.engine.context
    for ids in prompts:
        if len(ids) > context:  # before anything is decoded
            raise context_exceeded(len(ids), fields.max_tokens or 0, context, "prompt")
        echo = tokenizer.decode(ids) if fields.echo else ""
        numbers = range(len(choices), len(choices) + (fields.n or 1))
        choices += [CompletionChoice(index, tokenizer, echo, ids[0]) for index in numbers]
        if fields.max_tokens == 0 and not with_prompt:  # only the echo, for which the engine is not needed
            continue
        limit = answer_limit(asked, "max_tokens", len(ids), context, DEFAULT_MAX_TOKENS)
        sampling = read_sampling(fields, limit, tokenizer.vocab_size)
        request = engine_request(fields, ids, sampling, fields.logprobs, grammar, job_id)
        requests.append(replace(request, prompt_logprobs=fields.logprobs) if with_prompt else request)
    return Job(
        model=model,
        requests=requests,
        choices=choices,
        encoder=encoder,
        stream=stream,
        prompt_tokens=sum(map(len, prompts)),
        prompts_only=fields.max_tokens == 0,
        id=job_id,
    )


def read_prompts(fields: CompletionFields, model: ServedModel, settings: Settings) -> list[list[int]]:
    """The ids of each prompt: a text, a list of texts, ids, or a list of lists of ids."""
    given, tokenizer = fields.prompt, model.tokenizer
    several = [given] if isinstance(given, str) else given
    if not several:
        raise bad_value("prompt", "at least one prompt")
    kinds = {type(each) for each in several}
    if len(kinds) > 1:
        raise bad_value("prompt", "texts, ids, or lists of ids, not a mixture")
    prompts: list[list[int]]
    if kinds == {str}:
        check_choices(fields, len(several), settings)  # before anything is encoded
        texts = [str(text) for text in several]
        for text in texts:
            check_chars("prompt", [text], model, settings)
        prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    else:
        prompts = [several] if kinds == {int} else several  # type: ignore[list-item, assignment]
        for ids in prompts:
            check_ids("prompt", ids, tokenizer.vocab_size)
    if not all(prompts):
        raise bad_value("prompt", "at least one token")
    return prompts
