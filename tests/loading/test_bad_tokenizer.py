"""Tokenizers that are none, that know more tokens than the model, or that want to run code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .damage import Case, Damage, assert_refused, content, each, field
from .folders import small_tokenizer, write_json


def vocabulary(size: int) -> Damage:
    return lambda folder: small_tokenizer(size).save(str(folder / "tokenizer.json"))


def model(**changes: Any) -> Damage:
    """A tokenizer whose model has other fields."""

    def damage(folder: Path) -> None:
        whole = json.loads((folder / "tokenizer.json").read_text())
        whole["model"] |= changes
        write_json(folder, "tokenizer.json", whole)

    return damage


def no_end(folder: Path) -> None:
    write_json(folder, "tokenizer_config.json", {})
    write_json(folder, "generation_config.json", {})


TOKENIZERS: list[Case] = [
    ("no JSON", content("tokenizer.json", b"{"), "tokenizer.json: is not a tokenizer"),
    ("an object of other things", content("tokenizer.json", b"{}"), "tokenizer.json: is not a tokenizer"),
    ("no UTF-8", content("tokenizer.json", b"\xff"), "tokenizer.json: is not a tokenizer"),
    (
        "another decoder",
        field("tokenizer.json", decoder={"type": "Fuse"}),
        "decoder: got .*, expected ByteLevel",
    ),
    ("merges of nothing", model(merges=[["x", "nothing"]]), "tokenizer.json: is not a tokenizer"),
    ("a panic", model(continuing_subword_prefix="é" * 9, merges=[["a", "b"]]), "json: is not a tokenizer"),
    (
        "one token more",
        vocabulary(97),
        "tokenizer.json: got token ids up to 96, expected less than vocab_size",
    ),
    ("an id of 2^32 - 1", model(vocab={"a": 2**32 - 1}), "tokenizer.json: got token ids up to 4294967295"),
    (
        "code",
        field("tokenizer_config.json", auto_map={"AutoTokenizer": "x.Y"}),
        "auto_map: .* code that comes",
    ),
    ("a token of numbers", field("tokenizer_config.json", eos_token=3), "eos_token: got 3, expected text"),
    (
        "a list as a token",
        field("tokenizer_config.json", bos_token={"content": 3}),
        "content: got 3, expected",
    ),
    (
        "a template of numbers",
        field("tokenizer_config.json", chat_template=3),
        "chat_template: got 3, expected",
    ),
    ("a long template", content("chat_template.jinja", b"x" * 2**21), "jinja: is longer than 1 MiB"),
    (
        "an end beyond",
        field("generation_config.json", eos_token_id=[3, 96]),
        r"eos_token_id: got \[3, 96\], exp",
    ),
    (
        "an end of text",
        field("generation_config.json", eos_token_id="x"),
        "eos_token_id: got 'x', expected a t",
    ),
    ("no end", no_end, "generation_config.json: eos_token_id: got nothing, expected ids that end an answer"),
]


@each(TOKENIZERS)
def test_a_tokenizer_that_cannot_be_used(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, sentence)


def test_the_panic_above_is_one(tmp_path):
    """Without our care the library would end the program with what is no Exception."""
    import tokenizers

    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    model(continuing_subword_prefix="é" * 9, merges=[["a", "b"]])(tmp_path)
    with pytest.raises(BaseException, match=r"range|bounds") as panic:
        tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert not isinstance(panic.value, Exception)
