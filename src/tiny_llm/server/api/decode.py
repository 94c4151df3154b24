"""The bytes of a body to checked fields; whatever is wrong is a 400 that names the field."""

import logging
import re
from typing import Any, TypeVar

import msgspec

from ..errors import ApiError, unsupported

LOG = logging.getLogger(__name__)
PLACE = re.compile(r"^(?P<problem>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
MISSING = re.compile(r"^Object missing required field `(\w+)`")
NOT_FINITE = re.compile(rb'"(\w{1,64})"\s*:\s*-?(?:NaN|Infinity)\b')
MAX_NAMES_LOGGED = 256

# Fields of OpenAI and vLLM that change the answer and that this server does not honour, and the values that
# change nothing.
NOT_HONOURED: dict[str, tuple[Any, ...]] = dict.fromkeys(
    """adapters allowed_token_ids audio chat_template context_management conversation documents guided_choice
    guided_grammar guided_json guided_regex max_tool_calls mm_processor_kwargs prediction previous_response_id
    prompt_embeds prompt_logprobs truncate_prompt_tokens web_search_options""".split(),
    (),
) | {
    "add_generation_prompt": (True,),
    "background": (False,),
    "bad_words": ([],),
    "continue_final_message": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "length_penalty": (1, 1.0),
    "modalities": (["text"],),
    "mcp_servers": ([],),
    "store": (False,),
    "suffix": ("",),
    "truncation": ("disabled",),
    "use_beam_search": (False,),
}

Fields = TypeVar("Fields", bound=msgspec.Struct)
_seen: set[str] = set()


def decode(body: bytes | bytearray, kind: type[Fields]) -> Fields:
    """The fields of a body; unknown ones are accepted, and each of their names is logged once."""
    with memoryview(body):  # a body counts while a thread has its values, also if its client has gone
        given = _read_json(body, kind)
        try:
            fields = msgspec.convert(given, kind, str_keys=True)
        except msgspec.ValidationError as error:
            raise _refusal(str(error)) from error
        _check_unknown(given.keys() - {field.encode_name for field in msgspec.structs.fields(kind)}, given)
        return fields


def _read_json(body: bytes | bytearray, kind: type[Fields]) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError as error:  # a number beyond the range of any field
        try:
            msgspec.json.decode(body, type=kind)  # knows in which field
        except (msgspec.DecodeError, UnicodeDecodeError) as placed:
            raise _refusal(str(placed)) from error
        raise _refusal(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = NOT_FINITE.search(body)
        if found:
            name = found[1].decode()
            raise ApiError(
                400, f"{name}: expected a finite number", param=name, code="invalid_json"
            ) from error
        raise ApiError(400, f"the body is not JSON in UTF-8: {error}", code="invalid_json") from error
    except RecursionError as error:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from error


def _refusal(text: str) -> ApiError:
    parts = PLACE.match(text)
    assert parts is not None
    problem, path = parts["problem"], (parts["path"] or "").removesuffix("[...]")
    if missing := MISSING.match(problem):
        path, problem = f"{path}.{missing[1]}".lstrip("."), "Expected a value, got none"
    if not path:
        return ApiError(400, f"the body: {_lower(problem)}", code="invalid_value")
    return ApiError(400, f"{path}: {_lower(problem)}", param=path, code="invalid_value")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _check_unknown(names: set[str], given: dict[str, Any]) -> None:
    for name in sorted(names):
        if name in NOT_HONOURED:
            # `is` tells False from 0 and True from 1.
            neutral = any(
                given[name] == value and type(given[name]) is type(value) for value in NOT_HONOURED[name]
            )
            if given[name] is not None and not neutral:
                raise unsupported(name, "this server does not support it")
        elif name not in _seen and len(_seen) < MAX_NAMES_LOGGED:
            _seen.add(name)
            LOG.info("unknown field %.64s: accepted, without effect", name)
