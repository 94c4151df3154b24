"""A mistake that a learner makes, and the test of its chapter that must say so."""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """`old`, which stands once in `file` of src, becomes `new`; `caught_by` is the first test that fails.

    That is its name, test_task_N_..., and perhaps, after a space, a part of its case's name. Few cases of
    task N pass before it: the one who made the mistake reads what it is, and not hundreds of dots.
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: str

    @property
    def task(self) -> str:
        return "_".join(self.caught_by.split("_")[1:3])

    def applied(self, source: str) -> str:
        assert source.count(self.old) == 1, (
            f"{self.file}: {self.old!r} stands there {source.count(self.old)} times"
        )
        return source.replace(self.old, self.new)


# Chapter -> its mistakes.
Table = dict[str, tuple[Mistake, ...]]
