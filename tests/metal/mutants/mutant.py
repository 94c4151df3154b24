"""A wrong kernel, a few characters away from the right one, and the report by which it must be found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# Found by the result: it differs from the oracle's.
NUMBERS = "numbers"


class Mutant(NamedTuple):
    """`old`, which occurs once in the kernel, becomes `new`; `found_by` is part of a report."""

    name: str
    old: str
    new: str
    found_by: str = NUMBERS

    def applied(self, source: str) -> str:
        assert source.count(self.old) == 1
        return source.replace(self.old, self.new)

    def assert_found(self, findings: Iterable[str]) -> None:
        """One finding is enough; those after it are not computed."""
        others = []
        for finding in findings:
            if self.found_by in finding:
                return
            others.append(finding)
        raise AssertionError(f"not found by '{self.found_by}', but {others}")
