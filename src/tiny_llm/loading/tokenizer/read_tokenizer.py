"""Reads the tokenizer of a folder: its tokens, the ids that end an answer, and the chat template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..config import ModelConfig
from ..errors import LoadError
from ..files import MEBIBYTE, Fields, find_file, parse_object, read_object, read_text, require_file
from ..find import EMBEDDED
from .chat_template import ChatTemplate
from .tokenizer import Tokenizer, guarded
from .tokenizer_format import NAME, check_format, is_sentencepiece

if TYPE_CHECKING:
    import tokenizers

SETTINGS = "tokenizer_config.json"
GENERATION = "generation_config.json"
TEMPLATE = "chat_template.jinja"
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a folder; all its ids must be below the vocabulary size of the model."""
    advice = "download the model again, or take an edition that has it"
    text = read_text(require_file(folder, NAME, advice), NAME, 64 * MEBIBYTE)
    definition = Fields(parse_object(text, NAME), NAME)
    check_format(definition, config)
    library = _parse(text)
    style = {"is_sentencepiece": is_sentencepiece(definition)}
    largest = max(library.get_vocab().values(), default=0)
    if largest >= config.vocab_size:
        limit = f"less than vocab_size in config.json, {config.vocab_size}"
        raise LoadError(f"{NAME}: got token ids up to {largest}, expected {limit}")
    settings = _fields(folder, SETTINGS)
    settings.refuse_code("auto_map")
    special = _special_tokens(settings)
    end_tokens = _end_tokens(folder, config, library, special.get("eos_token"))
    source = _template(folder, settings)
    if source is None:
        return Tokenizer(library, end_tokens, None, **style)
    trusted = folder.resolve() == EMBEDDED
    return Tokenizer(library, end_tokens, ChatTemplate(source, special, trusted), **style)


def _parse(text: str) -> tokenizers.Tokenizer:
    import tokenizers  # slow to import, and `--help` does not need it

    with guarded("is not a tokenizer"):
        library = tokenizers.Tokenizer.from_str(text)
    library.no_truncation()
    library.no_padding()
    return library


def _fields(folder: Path, name: str) -> Fields:
    """The fields of a file; none if it does not exist."""
    path = find_file(folder, name)
    return Fields({} if path is None else read_object(path, name, 16 * MEBIBYTE), name)


def _end_tokens(
    folder: Path, config: ModelConfig, library: tokenizers.Tokenizer, named: str | None
) -> list[int]:
    """The ids that end an answer: the tokenizer's, and those of generation_config.json or config.json."""
    generation = _fields(folder, GENERATION)
    own = None if named is None else library.token_to_id(named)
    published = generation.token_ids("eos_token_id") or config.end_tokens
    ids = list(dict.fromkeys(published if own is None else (own, *published)))
    if not ids or max(ids) >= config.vocab_size:
        raise generation.error("eos_token_id", f"ids that end an answer, below {config.vocab_size}")
    return ids


def _special_tokens(settings: Fields) -> dict[str, str]:
    """The texts of special tokens by name; some files have an object with the text as its content."""
    special = {}
    for name in SPECIAL_TOKENS:
        if isinstance(settings.get(name), dict):
            text = settings.object(name).text("content")
        else:
            text = settings.text(name)
        if text is not None:
            special[name] = text
    return special


def _template(folder: Path, settings: Fields) -> str | None:
    """The chat template; if there are several, the one with the name "default"."""
    path = find_file(folder, TEMPLATE)
    if path is not None:
        return read_text(path, TEMPLATE, MEBIBYTE)
    if not isinstance(settings.get("chat_template"), list):
        return settings.text("chat_template")
    named = [entry for entry in settings.list("chat_template") if isinstance(entry, dict)]
    found = next((entry for entry in named if entry.get("name") == "default"), {})
    return Fields(found, f"{SETTINGS}: chat_template").text("template")
