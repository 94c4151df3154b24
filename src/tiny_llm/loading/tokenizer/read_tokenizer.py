"""Reads the tokenizer of a folder: its tokens, the ids that end an answer, and the chat template.

The steps of a tokenizer.json are those of known families; others could take unlimited memory or time. A
vocabulary is of bytes (ByteLevel: Qwen, Llama 3), or of SentencePiece: a space is written as META, and a byte
that no token has as one of 256 tokens (Llama 2, Mistral).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import LoadError
from ..config import ModelConfig
from ..files import MEBIBYTE, Fields, find_file, parse_object, read_object, read_text, require_file
from ..find import EMBEDDED
from .chat_template import ChatTemplate
from .tokenizer import META, NAME, Tokenizer, guarded

if TYPE_CHECKING:
    import tokenizers

SETTINGS = "tokenizer_config.json"
GENERATION = "generation_config.json"
TEMPLATE = "chat_template.jinja"
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
# The expressions for words of Qwen, with single digits, and of Llama 3; others may take exponential time.
WORDS, WORDS_AND_NUMBERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in (r"\p{N}", r"\p{N}{1,3}")
)
MAX_STEPS = 8
# What tokens of SentencePiece become. Some end with another step: the space before a text is none of it.
DECODERS = [
    {"type": "Replace", "pattern": {"String": META}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a folder; all its ids must be below the vocabulary size of the model."""
    advice = "download the model again, or take an edition that has it"
    text = read_text(require_file(folder, NAME, advice), NAME, 64 * MEBIBYTE)
    definition = Fields(parse_object(text, NAME), NAME)
    check_format(definition, config)
    library = _parse(text)
    largest = max(library.get_vocab().values(), default=0)
    if largest >= config.vocab_size:
        limit = f"less than vocab_size in config.json, {config.vocab_size}"
        raise LoadError(f"{NAME}: got token ids up to {largest}, expected {limit}")
    settings = _fields(folder, SETTINGS)
    settings.refuse_code("auto_map")
    special = _special_tokens(settings)
    end_tokens = _end_tokens(folder, config, library, special.get("eos_token"))
    source = _template(folder, settings)
    trusted = folder.resolve() == EMBEDDED
    template = None if source is None else ChatTemplate(source, special, trusted)
    sentencepiece = is_sentencepiece(definition)
    adds_space = sentencepiece and len(_steps(definition, "decoder", "decoders")) > len(DECODERS)
    return Tokenizer(library, end_tokens, template, is_sentencepiece=sentencepiece, adds_space=adds_space)


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


def check_format(whole: Fields, config: ModelConfig) -> None:
    """LoadError for any other step, before the library compiles it."""
    model = whole.object("model")
    _expect(model, "type", "BPE")
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(key):
            raise model.error(key, "none")
    for step in _steps(whole, "post_processor", "processors"):
        _check_frame(step, config)
    if is_sentencepiece(whole):
        _check_sentencepiece(whole)
        return
    for step in _steps(whole, "normalizer", "normalizers"):
        _expect(step, "type", "NFC")
    _check_words(whole)
    _expect(whole.object("decoder"), "type", "ByteLevel")


def is_sentencepiece(whole: Fields) -> bool:
    """Whether the vocabulary has META for spaces, and tokens for bytes."""
    decoder = whole.get("decoder")
    return isinstance(decoder, dict) and decoder.get("type") == "Sequence"


def _check_sentencepiece(whole: Fields) -> None:
    """Spaces become META, and one may be put before a text, by either form of these steps."""
    normalizers = _steps(whole, "normalizer", "normalizers")
    for step in normalizers:
        _expect(step, "type", "Prepend", "Replace")
        if step.get("type") == "Prepend":
            _expect(step, "prepend", META)
        else:
            _expect(step.object("pattern"), "String", " ")
            _expect(step, "content", META)
    if len(normalizers) > 2:  # each Prepend makes the text longer
        raise whole.error("normalizer", "'Prepend' and 'Replace', once")
    for step in _steps(whole, "pre_tokenizer", "pretokenizers"):
        _expect(step, "type", "Metaspace")
        _expect(step, "replacement", META)
    if [step.values for step in _steps(whole, "decoder", "decoders")] not in (DECODERS, [*DECODERS, STRIP]):
        raise whole.error("decoder", "'Replace', 'ByteFallback' and 'Fuse', and then 'Strip' or nothing")
    if whole.object("model").get("byte_fallback") is not True:
        raise whole.object("model").error("byte_fallback", "true, with such a decoder")


def _steps(whole: Fields, key: str, inside: str) -> list[Fields]:
    """The step with this name, or the steps of a sequence there."""
    if whole.get(key) is None:
        return []
    part = whole.object(key)
    if part.get("type") != "Sequence":
        return [part]
    steps = part.list(inside)
    if len(steps) > MAX_STEPS or not all(isinstance(step, dict) for step in steps):
        raise part.error(inside, f"at most {MAX_STEPS} objects")
    return [Fields(step, f"{part.name}: {inside}") for step in steps]


def _expect(step: Fields, key: str, *allowed: str) -> None:
    if step.get(key) not in allowed:
        raise step.error(key, " or ".join(map(repr, allowed)))


def _check_words(whole: Fields) -> None:
    """ByteLevel may come last and once, because each time it can double the text."""
    key = "pre_tokenizer"
    steps = _steps(whole, key, "pretokenizers")
    if not steps:
        raise whole.error(key, "'ByteLevel', or a sequence that ends with it")
    for step in steps[:-1]:
        _expect(step, "type", "Split", "Digits")
        if step.get("type") == "Split":
            _expect(step.object("pattern"), "Regex", WORDS, WORDS_AND_NUMBERS)
    _expect(steps[-1], "type", "ByteLevel")


def _check_frame(step: Fields, config: ModelConfig) -> None:
    """A template may add a few tokens of the model, and has the text once."""
    _expect(step, "type", "ByteLevel", "TemplateProcessing")
    if step.get("type") == "ByteLevel":
        return
    pieces = step.list("single")
    texts = [piece for piece in pieces if not isinstance(piece, dict) or "SpecialToken" not in piece]
    if len(pieces) > MAX_STEPS or len(texts) != 1:
        raise step.error("single", f"the text once, and fewer than {MAX_STEPS} tokens around it")
    special = step.object("special_tokens")
    for name in special.values:
        token = special.object(name)
        ids = token.token_ids("ids")
        if len(ids) > 1 or max(ids, default=0) >= config.vocab_size:
            raise token.error("ids", f"one id below vocab_size in config.json, {config.vocab_size}")
