"""A mistake of a learner, and the test of the chapter that must find it."""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """`old`, which occurs once in `file` of src, becomes `new`; `caught_by` is the first test that fails.

    `caught_by` is a name, test_task_N_..., optionally followed by a space and a part of its case's name. Only
    few cases of task N may pass before it, so that the learner sees the mistake early.
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
        assert source.count(self.old) == 1, f"{self.file}: {self.old!r} occurs {source.count(self.old)} times"
        return source.replace(self.old, self.new)


# Chapter -> its mistakes.
Table = dict[str, tuple[Mistake, ...]]
