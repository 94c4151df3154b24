"""Things that are no files, in the place of the files of a model; and formats that are not read."""

from __future__ import annotations

import os
from pathlib import Path

from ..support.models.checkpoints import checkpoint
from .damage import WEIGHTS, Case, Damage, assert_refused, content, each, link, special, without
from .folders import arrays_of, write_shards

ANY_FILE: list[Case] = [
    case
    for name in ("config.json", WEIGHTS, "tokenizer.json")
    for case in [
        (f"{name} missing", without(name), f"{name}: is not in "),
        (f"{name} empty", content(name, b""), f"{name}: is empty; download the model again"),
        (
            f"{name} a pointer",
            content(name, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"),
            f"{name}: is a Git LFS pointer, not the file itself; run 'git lfs pull'",
        ),
        (f"{name} a folder", special(name, Path.mkdir), f"{name}: is not a regular file"),
        (f"{name} a pipe", special(name, os.mkfifo), f"{name}: is not a regular file"),
        (f"{name} outside", link(name, "../outside"), f"{name}: links out of the model's folder"),
        (f"{name} nowhere", link(name, "gone"), f"{name}: is a broken link"),
        (f"{name} a ring", link(name, name), f"{name}: cannot be read"),
    ]
]


@each(ANY_FILE)
def test_a_file_that_is_none(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, sentence)


def other_format(name: str) -> Damage:
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


def shards_alone(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    write_shards(folder, arrays_of(checkpoint(layers=1)), 2)
    (folder / f"{WEIGHTS}.index.json").unlink()


FORMATS: list[Case] = [
    ("pickled", other_format("pytorch_model.bin"), "has pickled weights, which could run code when read"),
    (
        "a pickled file of torch",
        other_format("model.pth"),
        "has pickled weights, which could run code when read",
    ),
    ("GGUF", other_format("model-q4_0.gguf"), "has GGUF weights; take the safetensors edition"),
    (
        "the first format of MLX",
        other_format("weights.npz"),
        "has weights in the first format of MLX; convert them",
    ),
    ("shards without an index", shards_alone, "has shards without their index, model.safetensors.index.json"),
]


@each(FORMATS)
def test_another_format_is_named(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, f"{WEIGHTS}: is not in .*, which {sentence}")
