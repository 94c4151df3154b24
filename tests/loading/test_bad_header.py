"""Damaged and truncated headers of safetensors files: refused before a weight is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from tiny_llm.loading import LoadError
from tiny_llm.loading.weights.header import read_header

from .damage import WEIGHTS, Case, Damage, assert_refused, content, each
from .folders import read_parts, write_folder, write_parts

NORM = "model.norm.weight"
DEEP = b"[" * 100_000
ENTRY = b'{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'


def resized(change: int) -> Damage:
    """`change` bytes more or fewer at the end."""
    return lambda folder: os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size + change)


def entry(**changes: Any) -> Damage:
    """One tensor's entry, with other values."""

    def damage(folder: Path) -> None:
        header, data = read_parts(folder / WEIGHTS)
        header[NORM] |= changes
        write_parts(folder / WEIGHTS, header, data)

    return damage


def header(text: bytes, length: int | None = None, data: bytes = b"") -> Damage:
    return lambda folder: write_parts(folder / WEIGHTS, text, data, length)


def giant_header(folder: Path) -> None:
    """Longer than the limit, in a file that is long enough for it."""
    (folder / WEIGHTS).write_bytes((2**24 + 1).to_bytes(8, "little"))
    os.truncate(folder / WEIGHTS, 2**25)


def too_many_tensors(folder: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    write_parts(folder / WEIGHTS, {str(i): empty for i in range(100_001)}, b"")


def moved(by: int) -> Damage:
    """The last tensor begins `by` bytes later."""

    def damage(folder: Path) -> None:
        parts, data = read_parts(folder / WEIGHTS)
        parts.pop("__metadata__")
        last = max(parts.values(), key=lambda tensor: tensor["data_offsets"])
        last["data_offsets"] = [offset + by for offset in last["data_offsets"]]
        write_parts(folder / WEIGHTS, parts, data + bytes(by) if by > 0 else data[:by])

    return damage


HEADERS: list[Case] = [
    ("five bytes", content(WEIGHTS, bytes(5)), "model.safetensors: ends inside its header"),
    ("a web page", content(WEIGHTS, b"<!DOCTYPE html><html>"), "model.safetensors: ends inside its header"),
    (
        "cut in the header",
        content(WEIGHTS, b"\xff\0\0\0\0\0\0\0{"),
        "model.safetensors: ends inside its header",
    ),
    ("cut in the weights", resized(-1), "model.safetensors: is cut off: got .* bytes of weights, expected"),
    ("bytes too many", resized(3), "model.safetensors: has 3 bytes after its last tensor"),
    ("a length of 2^63", header(b"{}", length=2**63), "model.safetensors: ends inside its header"),
    (
        "a giant header",
        giant_header,
        "model.safetensors: header: got 16777217 bytes, expected at most",
    ),
    ("no UTF-8", header(b'{"\xff": 1}'), "model.safetensors: header: is not UTF-8"),
    ("no JSON", header(b"{'a': 1}"), "model.safetensors: header: is not valid JSON"),
    ("a list", header(b"[]"), "model.safetensors: header: got a JSON list, expected an object"),
    ("depth", header(DEEP), "model.safetensors: header: is not valid JSON"),
    (
        "a name twice",
        header(b'{"a": %b, "a": %b}' % (ENTRY, ENTRY), data=bytes(4)),
        "header: is not valid JSON.*duplicate key 'a'",
    ),
    ("too many tensors", too_many_tensors, "header: got 100001 tensors, expected at most 100000"),
    ("no tensors", header(b"{}"), r"'model.embed_tokens.weight': is missing"),
    (
        "an entry that is a list",
        header(b'{"a": []}'),
        "'a': got other fields than dtype, shape and data_offsets",
    ),
    ("an unknown field", entry(stride=[1]), "'model.norm.weight': got other fields than"),
    ("an unknown type", entry(dtype="F4"), "'model.norm.weight': dtype: got 'F4', expected one of BOOL"),
    ("a type that is a list", entry(dtype=["F32"]), r"'model.norm.weight': dtype: got \['F32'\]"),
    ("a size below 0", entry(shape=[-128]), r"'model.norm.weight': shape: got \[-128\]"),
    ("a size beyond int32", entry(shape=[2**31]), r"'model.norm.weight': shape: got \[2147483648\]"),
    ("a product beyond int64", entry(shape=[2**31 - 1] * 4), "data_offsets: got 512 bytes, expected 85"),
    ("a size that is a bool", entry(shape=[True]), r"'model.norm.weight': shape: got \[True\]"),
    ("a size that is a fraction", entry(shape=[128.0]), r"'model.norm.weight': shape: got \[128.0\]"),
    ("a shape that is a number", entry(shape=128), "'model.norm.weight': shape: got 128"),
    ("a shape of 9 axes", entry(shape=[128] + [1] * 8), r"'model.norm.weight': shape: got \[128, 1, 1"),
    (
        "a size beyond int32 beside a 0",
        header(b'{"a": {"dtype": "F32", "shape": [2147483648, 0], "data_offsets": [0, 0]}}'),
        r"'a': shape: got \[2147483648, 0\]",
    ),
    (
        "offsets in reverse",
        entry(data_offsets=[512, 0]),
        r"'model.norm.weight': data_offsets: got \[512, 0\]",
    ),
    ("one offset", entry(data_offsets=[0]), r"'model.norm.weight': data_offsets: got \[0\]"),
    ("an offset below 0", entry(data_offsets=[-512, 0]), "'model.norm.weight': data_offsets: got"),
    ("offsets after the end", entry(data_offsets=[10**9, 10**9 + 512]), "leaves a gap before it"),
    ("too few bytes", entry(shape=[129]), r"data_offsets: got 512 bytes, expected 516 for F32 \[129\]"),
    ("a gap", moved(4), "leaves a gap before it; the file is damaged"),
    ("an overlap", moved(-4), "overlaps another tensor; the file is damaged"),
]


@each(HEADERS)
def test_a_damaged_header_is_refused(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, sentence)


def test_random_changes_are_refused_or_leave_a_consistent_header(tmp_path):
    """No other error, and no tensor outside the file."""
    path = write_folder(tmp_path) / WEIGHTS
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    places = st.integers(0, 8 + length)
    changes = st.lists(st.tuples(places, st.binary(min_size=1, max_size=8)), min_size=1, max_size=4)

    @settings(max_examples=150, deadline=None)
    @given(changes, st.integers(-64, 64))
    def check(changes: list[tuple[int, bytes]], more: int) -> None:
        data = bytearray(whole)
        for place, new in changes:
            data[place : place + len(new)] = new
        data = data[:more] if more < 0 else data + bytes(more)
        path.write_bytes(data)
        try:
            tensors = read_header(path, WEIGHTS)
        except LoadError:
            return
        data_bytes = len(data) - 8 - int.from_bytes(data[:8], "little")
        assert sum(tensor.nbytes for tensor in tensors.values()) == data_bytes
        first = len(data) - data_bytes
        assert all(first <= tensor.begin <= tensor.end <= len(data) for tensor in tensors.values())

    check()
