"""The one way in which loading fails."""

from ..errors import TinyLlmError

LONGEST = 600  # characters of a sentence; names in a hostile file may be longer than all else


class LoadError(TinyLlmError):
    """One clear sentence for a person: what is wrong with the model and what to do."""

    def __init__(self, sentence: str):
        printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence[:LONGEST])
        super().__init__(printable + "…" * (len(sentence) > LONGEST))


class NoChatTemplate(LoadError):
    """The model has no form for messages."""
