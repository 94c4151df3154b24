"""The exceptions of this library: they have fields, from which their text is made."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

MAX_MESSAGE_CHARS = 600  # characters of a LoadError; names in a hostile file may be very long


class TinyLlmError(Exception):
    """Base class of the library's errors; those of Python, MLX and the system are not derived from it."""


class RefusedArgument(TinyLlmError):
    """An argument that cannot be used: "operation: argument: got ..., expected ...".

    Raised as one of the classes below. `operation` is the function or class that was called, `argument` its
    parameter, `got` the value and `expected` the allowed ones, all as text; the first two may be empty.
    """

    def __init__(self, operation: str, argument: str, got: object, expected: object):
        self.operation = operation
        self.argument = argument
        self.got = str(got)
        self.expected = str(expected)
        super().__init__(operation, argument, got, expected)

    def __reduce__(self) -> tuple[type["RefusedArgument"], tuple[str, str, str, str]]:
        return type(self), (self.operation, self.argument, self.got, self.expected)

    @property
    def reason(self) -> str:
        """The text without operation and argument."""
        return f"got {self.got}, expected {self.expected}"

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.operation, self.argument, self.reason)))


class ArgumentError(RefusedArgument, ValueError):
    """A value, shape, size or dtype outside the allowed ones."""


class ArgumentTypeError(RefusedArgument, TypeError):
    """An object of a wrong class, such as a list in the place of an array."""


class UnsupportedError(RefusedArgument, NotImplementedError):
    """A meaningful request that this class or function does not support."""


class AnswerError(TinyLlmError):
    """What ends one answer of a list and no other; raised as one of the two classes below.

    The other answers are completed first: `results` has a `Result` for each prompt, in order, of which those
    that failed have an `error`. With one prompt it is empty.
    """

    results: tuple[Any, ...] = ()

    def with_results(self, results: Sequence[Any]) -> Self:
        """The error of the list in which this one has ended an answer."""
        error = copy(self)
        error.results = tuple(results)
        return error


class NumericError(AnswerError, ArithmeticError):
    """A model computed NaN logits."""

    def __init__(self, results: Sequence[Any] = ()) -> None:
        self.results = tuple(results)
        super().__init__(
            "the logits of the next token are NaN: the model's weights are damaged, or its values overflow; "
            "float32 has the largest range"
        )

    def __reduce__(self) -> tuple[type["NumericError"], tuple[tuple[Any, ...]]]:
        return type(self), (self.results,)


class GrammarError(AnswerError, RuntimeError):
    """The answer cannot follow its grammar: a limit of llguidance, or a token that is not allowed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"the answer cannot follow its grammar: {self.reason}"


class QueueFull(TinyLlmError, RuntimeError):
    """No more requests can wait: try again later. `limit` is the number that may wait."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(limit)

    def __str__(self) -> str:
        return f"the queue of {self.limit} waiting requests is full"


class GrammarQueueBusy(TinyLlmError, RuntimeError):
    """A new grammar was given up after `seconds`, because others waited to be compiled: try again later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(seconds)

    def __str__(self) -> str:
        return f"the grammar takes more than {self.seconds:g} s to compile, and others wait: try again later"


class Draining(TinyLlmError, RuntimeError):
    """The engine finishes its requests and accepts no new ones."""

    def __str__(self) -> str:
        return "the engine accepts no new requests: it is being closed"


class EngineFailed(TinyLlmError, RuntimeError):
    """The engine stopped after a fault."""

    def __str__(self) -> str:
        return "the engine stopped after a fault"


class RankLost(EngineFailed):
    """A process with a share of the model has ended, or does not answer; the text says which."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        RuntimeError.__init__(self, reason)

    def __str__(self) -> str:
        return self.reason


class StepFailed(TinyLlmError, RuntimeError):
    """A fault inside a step of an engine, which is its `__cause__`: no argument of the caller was wrong."""

    def __init__(self, fault: Exception) -> None:
        super().__init__(fault)
        self.__cause__ = fault

    def __str__(self) -> str:
        return f"a step failed: {type(self.__cause__).__name__}: {self.__cause__}"


class OutOfMemoryError(TinyLlmError, MemoryError):
    """A computation did not fit into the memory of the GPU.

    `requested` is the size in bytes of the array that did not fit, `device` the name of the GPU and `memory`
    its size in bytes; each is None where MLX does not report it.
    """

    def __init__(self, requested: int | None = None, device: str | None = None, memory: int | None = None):
        self.requested = requested
        self.device = device
        self.memory = memory
        super().__init__(requested, device, memory)

    def __reduce__(self) -> tuple[type["OutOfMemoryError"], tuple[int | None, str | None, int | None]]:
        return type(self), (self.requested, self.device, self.memory)

    @property
    def problem(self) -> str:
        """The text without advice."""
        place = self.device or "this device"
        if self.memory is not None:
            place += f" with {self.memory / 1e9:.1f} GB"
        size = "" if self.requested is None else f": no room for an array of {self.requested / 1e9:.2f} GB"
        return f"out of memory on {place}{size}"

    def __str__(self) -> str:
        return (
            f"{self.problem}. A shorter prompt or answer, a smaller batch, a smaller model or a 16-bit dtype "
            "needs less"
        )


class LoadError(TinyLlmError):
    """A model cannot be loaded. The text is one sentence: what is wrong, and what to do."""

    def __init__(self, sentence: str):
        printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence[:MAX_MESSAGE_CHARS])
        super().__init__(printable + "…" * (len(sentence) > MAX_MESSAGE_CHARS))


class NoChatTemplate(LoadError):
    """The model has no chat template."""


@contextmanager
def calling(operation: str, *, argument: str | None = None, **names: str) -> Iterator[None]:
    """Put the operation and argument of the caller into errors raised by inner functions.

    `names` maps names of inner arguments to the caller's; messages[0] becomes prompt[0], too.
    """
    try:
        yield
    except RefusedArgument as error:
        error.operation = operation
        inside, bracket, place = error.argument.partition("[")
        error.argument = names.get(inside, inside) + bracket + place if argument is None else argument
        raise
