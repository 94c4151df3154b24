"""Ways to break a model's folder, and what must then happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm.loading import LoadError, load

from .folders import change_json

WEIGHTS = "model.safetensors"

Damage = Callable[[Path], object]
Case = tuple[str, Damage, str]  # its name, what is done to a good folder, and what the sentence says


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("damage", "sentence"), [pytest.param(*case, id=name) for name, *case in cases]
    )


def assert_refused(folder: Path, sentence: str) -> None:
    """The error is one line, begins with the model's name and matches; no array was allocated."""
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    with pytest.raises(LoadError, match=sentence) as refusal:
        load(str(folder))
    assert mx.get_peak_memory() <= before
    text = str(refusal.value)
    assert text.startswith(f"{folder}: ")
    assert text.isprintable()
    assert len(text) < 700


def content(name: str, data: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(data)


def without(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def field(name: str, **changes: Any) -> Damage:
    return lambda folder: change_json(folder, name, **changes)


def link(name: str, target: str) -> Damage:
    """The file moves out of the folder, and a link takes its place."""

    def damage(folder: Path) -> None:
        (folder / name).rename(folder.parent / "outside")
        (folder / name).symlink_to(target)

    return damage


def special(name: str, make: Callable[[Path], object]) -> Damage:
    """Something that is no file in the place of a file."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return damage
