"""Text that grows with each token, in time that does not grow with the text."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Joins the bytes of tokens to characters; those of an unfinished character wait for the next token."""

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
        """End the text: bytes that wait in vain become U+FFFD."""
        self._append(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """All of it."""
        return self._text

    @property
    def last_segment(self) -> str:
        """What came since this was last asked for."""
        segment, self._seen = self._text[self._seen :], len(self._text)
        return segment

    def _append(self, piece: str) -> None:
        # Python extends a string in place if only one local variable refers to it; else it copies all.
        text, self._text = self._text, ""
        text += piece
        self._text = text
