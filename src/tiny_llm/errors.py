"""What this library raises: exceptions with fields, whose text is made from them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class TinyLlmError(Exception):
    """What the library itself refuses; errors of Python, MLX and the system are none of these."""


class RefusedArgument(TinyLlmError):
    """Something given that cannot be used: "operation: argument: got ..., expected ...".

    Raised as one of its kinds below. `operation` is the function or class that was called, `argument` its
    parameter, `got` what was given and `expected` what may be given, all as text; the first two may be empty.
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
        """What is wrong, for a text that names the argument in another way."""
        return f"got {self.got}, expected {self.expected}"

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.operation, self.argument, self.reason)))


class ArgumentError(RefusedArgument, ValueError):
    """A value, shape or size that is out of the range allowed."""


class ArgumentTypeError(RefusedArgument, TypeError):
    """An object, or an array, of a wrong type."""


class UnsupportedError(RefusedArgument, NotImplementedError):
    """Something that makes sense, but that this class or function does not offer."""


class NumericError(TinyLlmError, ArithmeticError):
    """A model gives NaN where scores should be.

    Where several prompts are answered, the others are answered first: `results` has a `Result` for each, in
    order, and its `finish_reason` is None where the model gave NaN. Else it is empty.
    """

    def __init__(self, results: Sequence[Any] = ()) -> None:
        self.results = tuple(results)
        super().__init__(
            "the scores of the next token are NaN: the model's weights are damaged, or its numbers overflow; "
            "float32 has the widest range"
        )

    def __reduce__(self) -> tuple[type["NumericError"], tuple[tuple[Any, ...]]]:
        return type(self), (self.results,)


@contextmanager
def calling(operation: str, *, argument: str | None = None, **names: str) -> Iterator[None]:
    """Name the operation that the user called, and its argument, in what is refused further inside.

    `names` has what the arguments further inside are called outside; messages[0] becomes prompt[0], too.
    """
    try:
        yield
    except RefusedArgument as error:
        error.operation = operation
        inside, bracket, place = error.argument.partition("[")
        error.argument = names.get(inside, inside) + bracket + place if argument is None else argument
        raise
