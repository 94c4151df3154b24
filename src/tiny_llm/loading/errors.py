"""The exceptions of loading."""

from ..errors import TinyLlmError

MAX_MESSAGE_CHARS = 600  # characters of a text; names in a hostile file may be very long


class LoadError(TinyLlmError):
    """A model cannot be loaded. The text is one sentence: what is wrong, and what to do."""

    def __init__(self, sentence: str):
        printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence[:MAX_MESSAGE_CHARS])
        super().__init__(printable + "…" * (len(sentence) > MAX_MESSAGE_CHARS))


class NoChatTemplate(LoadError):
    """The model has no chat template."""
