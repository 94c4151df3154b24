"""Checks of argument types: each raises an error with the type that was given and the one expected."""

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError


def kind(given: object) -> str:
    """The type of an object with its article: "None", "a str", "an int"."""
    if given is None:
        return "None"
    name = type(given).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def check_type(operation: str, argument: str, given: object, types: Any, expected: str) -> None:
    """An instance of one of these types."""
    if not isinstance(given, types):
        raise ArgumentTypeError(operation, argument, kind(given), expected)


def check_text(operation: str, argument: str, given: object) -> None:
    """A str."""
    check_type(operation, argument, given, str, "a str")


def check_texts(operation: str, argument: str, given: object) -> None:
    """A sequence of str, but not a str, which is a sequence of its characters."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise ArgumentTypeError(operation, argument, kind(given), "a list of str")
    for index, text in enumerate(given):
        check_text(operation, f"{argument}[{index}]", text)


def check_int(operation: str, argument: str, given: object) -> None:
    """An integer; True and False do not count."""
    if not isinstance(given, Integral) or isinstance(given, bool):
        raise ArgumentTypeError(operation, argument, kind(given), "an int")


def check_size(operation: str, argument: str, given: Any, *, minimum: int = 1) -> None:
    """An integer not below `minimum`."""
    check_int(operation, argument, given)
    if given < minimum:
        raise ArgumentError(operation, argument, given, f"at least {minimum}")


def check_number(operation: str, argument: str, given: object) -> None:
    """A real number; True and False do not count."""
    if not isinstance(given, Real) or isinstance(given, bool):
        raise ArgumentTypeError(operation, argument, kind(given), "a number")


def check_function(operation: str, argument: str, given: object) -> None:
    """A callable."""
    if not callable(given):
        raise ArgumentTypeError(operation, argument, kind(given), "a function")


def check_attributes(
    operation: str, argument: str, given: object, names: Iterable[str], expected: str
) -> None:
    """An object of any class that has these attributes."""
    missing = [name for name in names if not hasattr(given, name)]
    if missing:
        what = f"{expected}, with {', '.join(names)}"
        raise ArgumentTypeError(operation, argument, kind(given), what)
