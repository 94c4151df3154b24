"""From fields to `Sampling`, which has the limits, and the room for an answer."""

from typing import Any

from ...sampling.params import Sampling
from ..errors import ApiError, bad_value, checking
from .fields import AnswerFields

# Fields whose names, or whose neutral values, are the same in a request and in `Sampling`.
SAME = (
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "logit_bias",
)
NEUTRAL = {"repetition_penalty": 1, "ignore_eos": False}  # others: 0


def read_sampling(fields: AnswerFields, max_tokens: int, vocabulary: int) -> Sampling:
    """How the tokens of an answer are chosen; temperature and top_p are 1 unless given, as at OpenAI."""
    arguments: dict[str, Any] = {
        "temp": 1.0 if fields.temperature is None else fields.temperature,
        "max_tokens": max_tokens,
    }
    if fields.top_p is not None and fields.top_p < 1:
        arguments["top_p"] = fields.top_p
    if fields.top_k is not None and fields.top_k > 0:  # 0 and -1 are all tokens
        arguments["top_k"] = fields.top_k
    for name in SAME:
        value = getattr(fields, name)
        if value is not None and (name == "seed" or value != NEUTRAL.get(name, 0)):
            arguments[name] = value
    with checking():
        sampling = Sampling(**arguments)
        sampling.check_vocabulary("", vocabulary)
    return sampling


def check_ids(param: str, ids: list[int], vocabulary: int) -> None:
    """MLX checks no index, so every id is checked before it meets an array."""
    if ids and not (min(ids) >= 0 and max(ids) < vocabulary):
        raise bad_value(param, f"token ids from 0 to {vocabulary - 1}")


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
        return ApiError(400, sentence, param=param, code="context_length_exceeded")
    sentence = (
        f"the context has {context} tokens, but the prompt has {prompt_tokens} and the answer up to {asked}: "
        "shorten the prompt or lower max_tokens"
    )
    return ApiError(400, sentence, param=param, code="context_length_exceeded")
