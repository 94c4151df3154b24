"""Text as bytes: tokenizers with one token for each byte, or for each printable character of ASCII."""

from __future__ import annotations

END = 256  # the end token; tokens 0 to 255 are bytes
VOCABULARY = 258  # the bytes, END, and another id that ends an answer


class ByteDetokenizer:
    """Shows an incomplete character as U+FFFD, as simple decoders do."""

    def __init__(self, tokenizer: object = None):
        self.reset()

    def reset(self) -> None:
        self.bytes = b""

    def add_token(self, token: int) -> None:
        assert token < END, "an end token is no text"
        self.bytes += bytes([token])

    @property
    def text(self) -> str:
        return self.bytes.decode(errors="replace")


class LookAheadDetokenizer(ByteDetokenizer):
    """Holds back the newest byte until `finalize()`."""

    def reset(self) -> None:
        super().reset()
        self.ended = False

    def finalize(self) -> None:
        self.ended = True

    @property
    def text(self) -> str:
        shown = self.bytes if self.ended else self.bytes[:-1]
        return shown.decode(errors="replace")


class ByteTokenizer:
    """One token for each byte. With `shared`, every read of `detokenizer` gives the same object."""

    eos_token_id = END
    _tokenizer = None

    def __init__(self, detokenizer: type[ByteDetokenizer] = ByteDetokenizer, *, shared: bool = False):
        self._make = detokenizer
        self._shared = detokenizer() if shared else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())

    @property
    def detokenizer(self) -> ByteDetokenizer:
        return self._shared or self._make()


class AsciiDetokenizer(ByteDetokenizer):
    """Tokens 0 to 94 are the printable characters of ASCII."""

    def add_token(self, token: int) -> None:
        super().add_token(token + 32)


class AsciiTokenizer(ByteTokenizer):
    """For real models with a vocabulary of 96; the last token is the end."""

    eos_token_id = 95

    def __init__(self) -> None:
        super().__init__(AsciiDetokenizer)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [byte - 32 for byte in super().encode(text, add_special_tokens)]


def as_text(tokens: list[int]) -> str:
    """The complete characters of these bytes; an incomplete one at the end is dropped."""
    return bytes(tokens).decode(errors="replace").rstrip("\ufffd")
