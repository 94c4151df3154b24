"""Prompts to checked token ids, tokens to whole characters, and checks of models and tokenizers."""

import sys
from typing import Any

from ..checks.types import check_attributes, check_text
from ..errors import ArgumentError
from ..sampling.grammar import Grammar
from ..sampling.params import Sampling
from .messages import RawText
from .protocols import DetokenizerProtocol, TokenizerProtocol

# Decoders return this for incomplete characters: a token may end inside a character.
REPLACEMENT_CHARACTER = "\ufffd"

MAX_VOCABULARY_PADDING = 512  # models with one vocabulary may differ in padding rows, by fewer than this


class TextStream:
    """The text of a growing list of tokens, piece by piece; no piece ends inside a character."""

    def __init__(self, detokenizer: DetokenizerProtocol):
        self._detokenizer = detokenizer
        self._length = 0
        detokenizer.reset()

    def add(self, token: int) -> str:
        """Add one token; return the characters that it completes."""
        self._detokenizer.add_token(token)
        return self._new_text()

    def finish(self) -> str:
        """End the text; return what the detokenizer held back, without an incomplete character."""
        finalize(self._detokenizer)
        return self._new_text()

    def _new_text(self) -> str:
        text = whole_characters(self._detokenizer.text)
        piece, self._length = text[self._length :], max(self._length, len(text))
        return piece


def whole_characters(text: str) -> str:
    """`text` without an incomplete character at its end."""
    return text.rstrip(REPLACEMENT_CHARACTER)


def finalize(detokenizer: DetokenizerProtocol) -> None:
    """End the text of a detokenizer that holds some back."""
    end = getattr(detokenizer, "finalize", None)
    if end is not None:
        end()


def new_detokenizer(tokenizer: Any) -> DetokenizerProtocol:
    """A new detokenizer, also from a tokenizer that returns the same object at each access."""
    detokenizer: DetokenizerProtocol = tokenizer.detokenizer
    if tokenizer.detokenizer is detokenizer:
        detokenizer = type(detokenizer)(tokenizer._tokenizer)
    detokenizer.reset()
    return detokenizer


def end_tokens(tokenizer: TokenizerProtocol) -> frozenset[int]:
    """The ids that end an answer; chat models often have several."""
    several = getattr(tokenizer, "eos_token_ids", None)
    return frozenset(several or [tokenizer.eos_token_id])


def encode_prompt(
    function: str, models: list[Any], tokenizer: TokenizerProtocol, prompt: str, context: int | None = None
) -> list[int]:
    """The checked ids of a prompt: at least one, all in the vocabularies, fewer than the context.

    A `RawText` gets the token that comes before each text, such as Llama's, if it does not begin with it; in
    a prompt by a template it is already.
    """
    check_tokenizer(function, "tokenizer", tokenizer)
    check_text(function, "prompt", prompt)
    ids = ids_of(tokenizer, prompt)
    if not ids:
        raise ArgumentError(function, "prompt", "no tokens", "at least one")
    for model in models:
        vocabulary = getattr(model, "vocab_size", None)
        # MLX checks no index: an unknown id would read past the table of tokens.
        if vocabulary is not None and not (min(ids) >= 0 and max(ids) < vocabulary):
            raise ArgumentError(
                function, "prompt", f"token ids from {min(ids)} to {max(ids)}", f"0 to {vocabulary - 1}"
            )
    longest = shortest_context(models, context)
    if longest is not None and len(ids) >= longest:
        raise ArgumentError(function, "prompt", f"{len(ids)} tokens", f"fewer than the context of {longest}")
    return ids


def ids_of(tokenizer: Any, prompt: str) -> list[int]:
    """The ids of a prompt, not checked."""
    encode_raw = getattr(tokenizer, "encode_raw", None)  # tokenizers of other libraries have none
    if isinstance(prompt, RawText) and encode_raw is not None:
        return list(encode_raw(prompt))
    return list(tokenizer.encode(prompt, add_special_tokens=False))


def shortest_context(models: list[Any], context: int | None = None) -> int | None:
    """The shortest context of `models` and the given one; None is no limit."""
    lengths = [length for length in (context, *map(context_length, models)) if length is not None]
    return min(lengths, default=None)


def answer_limit(
    models: list[Any], prompt_tokens: int, max_tokens: int | None, context: int | None = None
) -> int:
    """The maximum number of tokens of an answer."""
    longest = shortest_context(models, context)
    room = sys.maxsize if longest is None else longest - prompt_tokens
    return room if max_tokens is None else min(room, max_tokens)


def context_length(model: Any) -> int | None:
    """The maximum number of tokens of the model; None if unknown."""
    args = getattr(getattr(model, "mlx_model", None), "args", None)
    length: int | None = getattr(model, "max_seq_len", getattr(args, "max_position_embeddings", None))
    return length


def check_model(function: str, argument: str, model: object, *abilities: str) -> None:
    """Check for a callable with these attributes."""
    check_attributes(function, argument, model, ("__call__", *abilities), "a model")


def check_sampling(function: str, sampling: Sampling, models: list[Any], grammar: Grammar | None) -> None:
    """Refuse ids outside of a vocabulary, and parameters that contradict a grammar."""
    for model in models:
        vocabulary = getattr(model, "vocab_size", None)
        if vocabulary is not None:
            sampling.check_vocabulary(function, vocabulary)
    if grammar is not None and sampling.ignore_eos:
        raise ArgumentError(
            function, "ignore_eos", True, "False with a grammar, which ends with an end token"
        )


def check_tokenizer(function: str, argument: str, tokenizer: object) -> None:
    """Check for the interface `Tokenizer`."""
    check_attributes(function, argument, tokenizer, ("encode", "eos_token_id", "detokenizer"), "a tokenizer")


def check_vocabularies(
    function: str, draft_tokenizer: TokenizerProtocol, tokenizer: TokenizerProtocol
) -> None:
    """Check that both tokenizers have the same tokens, if both are known."""
    vocabularies = [getattr(each, "get_vocab", None) for each in (draft_tokenizer, tokenizer)]
    if draft_tokenizer is tokenizer or None in vocabularies:
        return
    draft, target = (get_vocab() for get_vocab in vocabularies if get_vocab is not None)
    if draft != target:
        raise ArgumentError(
            function,
            "draft_tokenizer",
            f"another vocabulary, of {len(draft)} tokens",
            f"that of tokenizer, of {len(target)}",
        )


def check_vocabulary_sizes(function: str, draft_model: Any, model: Any) -> None:
    """Check that both vocabularies have one size, up to padding, if both are known."""
    draft, target = (getattr(each, "vocab_size", None) for each in (draft_model, model))
    if draft is None or target is None or abs(draft - target) < MAX_VOCABULARY_PADDING:
        return
    raise ArgumentError(
        function,
        "draft_model",
        f"a vocabulary of {draft}",
        f"{target} (may differ by fewer than {MAX_VOCABULARY_PADDING} padding rows)",
    )
