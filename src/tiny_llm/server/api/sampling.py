"""From the fields that all answers have in common to a request of the engine.

`Sampling` has the limits of how tokens are chosen; those of the server and of the context are here.
"""

import secrets

from ...engine import EngineRequest
from ...sampling.grammar import Grammar
from ...sampling.params import Sampling
from ..errors import ApiError, bad_value, checking
from ..models import ServedModel
from ..settings import Settings
from .fields import AnswerFields

# The fields that have their names in `Sampling`, and the values with which they change nothing.
NEUTRAL: dict[str, tuple[float, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "seed": (),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop": (),
    "stop_token_ids": (),
    "logit_bias": (),
}


def engine_request(
    fields: AnswerFields,
    ids: list[int],
    max_tokens: int,
    model: ServedModel,
    job_id: str,
    *,
    grammar: Grammar | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> EngineRequest:
    """Its time limit is set when it is submitted. The temperature is 1 unless given, as at OpenAI."""
    given = {name: getattr(fields, name) for name in NEUTRAL}
    given = {name: value for name, value in given.items() if value is not None and value not in NEUTRAL[name]}
    temperature = 1.0 if fields.temperature is None else fields.temperature
    with checking():
        sampling = Sampling(temp=temperature, max_tokens=max_tokens, **given)
        sampling.check_vocabulary("", model.tokenizer.vocab_size)
    return EngineRequest(
        prompt_ids=tuple(ids),
        sampling=sampling,
        n=fields.n or 1,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        grammar=grammar,
        salt=fields.cache_salt or "",
        id=job_id,
    )


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(16)}"


def check_choices(fields: AnswerFields, prompts: int, settings: Settings) -> None:
    """Every choice costs memory and time, so their number has a limit."""
    if (fields.n or 1) > settings.max_choices:
        raise bad_value("n", f"at most {settings.max_choices}")
    if (fields.n or 1) * prompts > settings.max_choices:
        raise bad_value("prompt", f"at most {settings.max_choices} answers, n times the number of prompts")


def check_logprobs(count: int | None, param: str, settings: Settings) -> None:
    if count is not None and count > settings.max_logprobs:
        raise bad_value(param, f"at most {settings.max_logprobs}")


def check_ids(param: str, ids: list[int], vocabulary: int) -> None:
    """MLX checks no index, so every id is checked before it meets an array."""
    if ids and not (min(ids) >= 0 and max(ids) < vocabulary):
        raise bad_value(param, f"token ids from 0 to {vocabulary - 1}")


def read_stream(fields: AnswerFields) -> tuple[bool, bool]:
    """Whether to stream, and whether the usage is the last chunk."""
    if fields.stream_options is not None and not fields.stream:
        raise bad_value("stream_options", "null unless stream is true")
    return bool(fields.stream), bool(fields.stream_options and fields.stream_options.include_usage)


def answer_limit(asked: int | None, param: str, prompt_tokens: int, context: int, default: int | None) -> int:
    """The maximum number of tokens of an answer; 400 if prompt and answer do not fit into the context."""
    room = context - prompt_tokens
    if room < 1:
        raise context_exceeded(prompt_tokens, 1, context, "prompt")
    if asked is None:
        return room if default is None else min(default, room)
    if asked > room:
        raise context_exceeded(prompt_tokens, asked, context, param)
    return asked


def context_exceeded(prompt_tokens: int, asked: int, context: int, param: str) -> ApiError:
    if prompt_tokens >= context:
        # Claude Code shortens a conversation by the difference of these numbers.
        sentence = f"the prompt is too long: {prompt_tokens} tokens > {context} tokens of context"
    else:
        sentence = (
            f"the context has {context} tokens, but the prompt has {prompt_tokens} and the answer up to "
            f"{asked}: shorten the prompt or lower max_tokens"
        )
    return ApiError(400, sentence, param=param, code="context_length_exceeded")
