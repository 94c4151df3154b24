"""POST /tokenize and /detokenize, with vLLM's fields; and how many tokens the prompt of a chat has."""

from typing import Any

import msgspec

from ..errors import bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import ChatFields, DetokenizeFields, TokenizeFields
from .prompt import check_chars, read_prompt
from .sampling import check_ids
from .tools import read_tools


def count_tokens(fields: ChatFields, model: ServedModel, settings: Settings) -> int:
    """Also of a prompt that is longer than the context."""
    return len(_chat_ids(fields, model, settings))


def tokenize(fields: TokenizeFields, model: ServedModel, settings: Settings) -> dict[str, Any]:
    """The ids of a text, or of the prompt of a chat."""
    if (fields.prompt is None) == (fields.messages is None):
        raise bad_value("prompt", "either a prompt or messages")
    if fields.messages is not None and fields.add_special_tokens:
        raise unsupported("add_special_tokens", "expected false: the chat template writes them")
    for name in ("tools", "continue_final_message", "chat_template_kwargs"):
        if fields.prompt is not None and getattr(fields, name):
            raise bad_value(name, "none beside a prompt")
    if fields.prompt is None:
        ids = _chat_ids(msgspec.convert(fields, ChatFields, from_attributes=True), model, settings)
    else:
        check_chars("prompt", [fields.prompt], model, settings)
        ids = model.tokenizer.encode(fields.prompt, fields.add_special_tokens is not False)
    texts = [_text(token, model) for token in ids] if fields.return_token_strs else None
    return {
        "count": len(ids),
        "max_model_len": model.engine.context,
        "tokens": ids,
        "token_strs": texts,
    }


def detokenize(fields: DetokenizeFields, model: ServedModel, settings: Settings) -> dict[str, Any]:
    """The text of ids."""
    if len(fields.tokens) > model.engine.context:
        raise bad_value("tokens", f"at most {model.engine.context} ids")
    check_ids("tokens", fields.tokens, model.tokenizer.vocab_size)
    return {"prompt": model.tokenizer.decode(fields.tokens)}


def _chat_ids(fields: ChatFields, model: ServedModel, settings: Settings) -> list[int]:
    return read_prompt(fields, read_tools(fields, model, settings), model, settings).ids


def _text(token: int, model: ServedModel) -> str:
    return model.tokenizer.token_bytes(token).decode(errors="replace")
