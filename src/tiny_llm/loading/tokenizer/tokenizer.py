"""Text to token ids and back, and the form of a chat."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...checks.types import check_type, kind
from ...errors import ArgumentError, ArgumentTypeError, LoadError, NoChatTemplate
from .chat_template import ChatTemplate

if TYPE_CHECKING:
    import tokenizers


def _byte_characters() -> dict[str, int]:
    """How byte-level vocabularies write bytes: printable ones as themselves, others from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


NAME = "tokenizer.json"
BYTES = _byte_characters()
META = "\u2581"  # a space, in the vocabularies of SentencePiece
BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")  # of SentencePiece, for a byte that no token has
LONG_TEXT = 10_000  # characters, which take about 20 ms to encode


@contextmanager
def guarded(failure: str) -> Iterator[None]:
    """Turn exceptions of the library into a LoadError about its file."""
    try:
        yield
    except BaseException as error:
        # The library raises Exception, and after a panic of its Rust code a direct subclass of BaseException.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise LoadError(f"{NAME}: {failure} ({error}); the file is damaged") from error


class Detokenizer:
    """Joins the bytes of tokens to text. The time per token does not grow with the text."""

    def __init__(self, token_bytes: Callable[[int], bytes]):
        self._token_bytes = token_bytes
        self.reset()

    def reset(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._seen = 0

    def add_token(self, token: int) -> None:
        self._append(self._decoder.decode(self._token_bytes(token)))

    def finalize(self) -> None:
        """End the text: bytes of an incomplete character become U+FFFD."""
        self._append(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """All of it."""
        return self._text

    @property
    def last_segment(self) -> str:
        """The text since the last access."""
        segment, self._seen = self._text[self._seen :], len(self._text)
        return segment

    def _append(self, piece: str) -> None:
        # Python extends a string in place if only one local variable refers to it; else it copies all.
        text, self._text = self._text, ""
        text += piece
        self._text = text


class Tokenizer:
    """The tokens of one model. An id without a token decodes to its number in angle brackets.

    adds_space: SentencePiece writes a space before the first word, which is no part of a whole text. It is
    part of an answer, which goes on after its prompt.
    """

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        end_tokens: Sequence[int],
        template: ChatTemplate | None,
        *,
        is_sentencepiece: bool = False,
        adds_space: bool = False,
    ):
        self._tokenizer = library
        self._template = template
        self._is_sentencepiece, self._adds_space = is_sentencepiece, adds_space
        self.eos_token_id = end_tokens[0]
        self.eos_token_ids = set(end_tokens)
        alone, framed = (self.encode("a", add_special_tokens=added)[:1] for added in (False, True))
        # The token before each text, such as Llama's <|begin_of_text|>; empty if there is none.
        self.first_text = "" if alone == framed else self.decode(framed)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text; names of special tokens in the text become these tokens."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ArgumentError("encode", "text", f"{text!r:.60}", "no lone surrogates") from error
        with guarded("could not encode the text"):
            if len(text) > LONG_TEXT:  # only a batch lets other threads of Python run meanwhile
                return self._tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)[0].ids
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_raw(self, text: str) -> list[int]:
        """The ids of a text that no template has made, with `first_text` before it, once."""
        begun = bool(self.first_text) and text.startswith(self.first_text)
        return self.encode(text, add_special_tokens=not begun)

    def decode(self, ids: Sequence[int]) -> str:
        """The whole text of some ids, special tokens included."""
        text = b"".join(map(self.token_bytes, ids))
        return (text.removeprefix(b" ") if self._adds_space else text).decode(errors="replace")

    @property
    def detokenizer(self) -> Detokenizer:
        """A new one at each access."""
        return Detokenizer(self.token_bytes)

    @property
    def definition(self) -> str:
        """The text of tokenizer.json."""
        return self._tokenizer.to_str()

    @property
    def vocab_size(self) -> int:
        """The number of tokens, added ones included."""
        return self._tokenizer.get_vocab_size()

    def get_vocab(self) -> dict[str, int]:
        """Every token and its id."""
        return self._tokenizer.get_vocab()

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tokenize: bool = False,
        add_generation_prompt: bool = True,
        enable_thinking: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """The prompt that the chat template makes of messages, as text or, with `tokenize`, as ids.

        `tools` describes functions to call.
        """
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
            raise ArgumentTypeError("apply_chat_template", "messages", kind(messages), "a list of messages")
        for index, message in enumerate(messages):
            place = f"messages[{index}]"
            check_type("apply_chat_template", place, message, Mapping, "a dict with role and content")
        check_type("apply_chat_template", "tokenize", tokenize, bool, "a bool")
        if self._template is None:
            raise NoChatTemplate(
                "chat_template: the model has none: it continues a text, but answers no messages"
            )
        text = self._template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=enable_thinking,
            tools=None if tools is None else list(tools),
        )
        # Special tokens are in the text already.
        return self.encode(text, add_special_tokens=False) if tokenize else text

    @cached_property
    def longest_token(self) -> int:
        """At least the number of characters of the longest token; of a byte-level one, its bytes."""
        return max(map(len, self._tokenizer.get_vocab()), default=0)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token, which may end inside a character."""
        if token in self._added:
            return self._added[token].encode()
        written = self._tokenizer.id_to_token(token)
        if written is None:
            return f"<{token}>".encode()
        if self._is_sentencepiece:
            byte = BYTE_TOKEN.fullmatch(written)
            return bytes([int(byte[1], 16)]) if byte else written.replace(META, " ").encode()
        try:
            return bytes(BYTES[character] for character in written)
        except KeyError:  # not a byte-level token
            return written.encode()

    @cached_property
    def _added(self) -> dict[int, str]:
        """Tokens that are plain text, such as <|im_end|>."""
        return {i: token.content for i, token in self._tokenizer.get_added_tokens_decoder().items()}
