"""The steps allowed in a tokenizer.json: those of known families. Others could take unlimited memory or time.

A vocabulary is of bytes (ByteLevel: Qwen, Llama 3), or of SentencePiece: a space is written as META, and a
byte that no token has as one of 256 tokens (Llama 2, Mistral).
"""

from ..config import ModelConfig
from ..files import Fields

NAME = "tokenizer.json"
# The expressions for words of Qwen, with single digits, and of Llama 3; others may take exponential time.
WORDS, WORDS_AND_NUMBERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in (r"\p{N}", r"\p{N}{1,3}")
)
META = "\u2581"
MAX_STEPS = 8


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
    for step in _steps(whole, "decoder", "decoders"):
        _expect(step, "type", "Replace", "ByteFallback", "Fuse", "Strip")


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
