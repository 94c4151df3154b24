"""A record that grows over several runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class WrongRecord(Exception):
    """The file is of another benchmark or another machine; the text says which."""


def read_record(path: Path, benchmark: str, cpu: str) -> Record | None:
    """The record in a file, None without one."""
    if not path.exists():
        return None
    record: Record = json.loads(path.read_text())
    for what, expected in (("benchmark", benchmark), ("cpu", cpu)):
        if record.get(what) != expected:
            raise WrongRecord(f"{path}: {what}: got {record.get(what)!r}, expected {expected!r}")
    return record


def joined(old: Record, new: Record, order: Sequence[tuple[str, str]]) -> Record:
    """`new` with those rows of `old` that it does not have, in the order of the groups and names of all rows.

    The versions and builds of peers that only `old` measured are kept.
    """
    measured = {_key(row) for row in new["rows"]}
    rows = [*new["rows"], *(row for row in old["rows"] if _key(row) not in measured)]
    known = [row for row in rows if _place(row) in order]  # others are rows of an older version
    known.sort(key=lambda row: (order.index(_place(row)), row["threads"]))
    threads = sorted({*old["threads"], *new["threads"]})
    versions = {**old["versions"], **new["versions"]}
    builds = {**old.get("builds", {}), **new["builds"]}
    return {**new, "versions": versions, "builds": builds, "threads": threads, "rows": known}


def _place(row: Record) -> tuple[str, str]:
    """Two groups may have a row of the same name, measured in two ways."""
    return row["group"], row["row"]


def _key(row: Record) -> tuple[str, str, int]:
    return (*_place(row), row["threads"])
