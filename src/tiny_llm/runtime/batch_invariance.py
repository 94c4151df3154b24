"""Products and attention whose bits do not depend on the number of rows that are computed together."""

from collections.abc import Iterator
from contextlib import contextmanager

from .extension import load_extension


@contextmanager
def batch_invariant(on: bool) -> Iterator[None]:
    """Operations made inside are batch invariant if `on`: kernels of the CPU add in one order."""
    if not on:
        yield
        return
    native = load_extension()
    before = native.set_batch_invariant(True)
    try:
        yield
    finally:
        native.set_batch_invariant(before)
