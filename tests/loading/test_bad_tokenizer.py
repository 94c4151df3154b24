"""Tokenizers that are damaged, have more tokens than the model, or name code to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tiny_llm.loading import LoadError, load
from tiny_llm.loading.tokenizer.read_tokenizer import WORDS
from tiny_llm.loading.tokenizer.tokenizer import Tokenizer

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


NFC = {"type": "NFC"}
GROWS = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SLOW = {"type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": False}
QWEN = SLOW | {"pattern": {"Regex": WORDS}}
PANIC = {"continuing_subword_prefix": "é" * 9, "merges": [["a", "b"]]}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
FIRST = {"SpecialToken": {"id": "x", "type_id": 0}}


def normalizer(*steps: Any) -> Damage:
    return field("tokenizer.json", normalizer={"type": "Sequence", "normalizers": steps})


def words(*steps: Any) -> Damage:
    return field("tokenizer.json", pre_tokenizer={"type": "Sequence", "pretokenizers": steps})


def frame(type: str = "TemplateProcessing", single: Any = (FIRST, TEXT), id: int = 5) -> Damage:
    """A tokenizer that puts a token before each text."""
    special = {"x": {"id": "x", "ids": [id], "tokens": ["x"]}}
    processor = {"type": type, "single": single, "pair": [], "special_tokens": special}
    return field("tokenizer.json", post_processor=processor)


def no_end(folder: Path) -> None:
    write_json(folder, "tokenizer_config.json", {})
    write_json(folder, "generation_config.json", {})


TOKENIZERS: list[Case] = [
    ("no JSON", content("tokenizer.json", b"{"), "tokenizer.json: is not valid JSON"),
    ("an object of other things", content("tokenizer.json", b"{}"), "tokenizer.json: model: got nothing"),
    ("no UTF-8", content("tokenizer.json", b"\xff"), "tokenizer.json: is not UTF-8 text"),
    (
        "another decoder",
        field("tokenizer.json", decoder={"type": "Fuse"}),
        "decoder: type: got 'Fuse', expected 'ByteLevel'",
    ),
    ("merges of nothing", model(merges=[["x", "nothing"]]), "tokenizer.json: is not a tokenizer"),
    ("a panic", model(**PANIC), "model: continuing_subword_prefix: got 'é+', expected none"),
    ("chance", model(dropout=0.5), "model: dropout: got 0.5, expected none"),
    ("another model", model(type="WordLevel", unk_token="[UNK]"), "type: got 'WordLevel', expected 'BPE'"),
    (
        "a normalizer that grows",
        normalizer(*[GROWS] * 8),
        "normalizers: type: got 'Replace', expected 'NFC'",
    ),
    ("nine normal forms", normalizer(*[NFC] * 9), "normalizer: normalizers: got .*, expected at most 8 obj"),
    ("a normalizer of numbers", normalizer(3), "normalizer: normalizers: got .*, expected at most 8 objects"),
    ("no words", field("tokenizer.json", pre_tokenizer=None), "pre_tokenizer: got nothing, expected 'ByteL"),
    ("words without end", words(SLOW, BYTES), r"pattern: Regex: got '\(a\|a\|aa\)\+\$', expected "),
    (
        "bytes twice",
        words(BYTES, BYTES),
        "pretokenizers: type: got 'ByteLevel', expected 'Split' or 'Digits'",
    ),
    ("no bytes", words({"type": "Digits"}), "type: got 'Digits', expected 'ByteLevel'"),
    ("another frame", frame(type="RobertaProcessing"), "expected 'ByteLevel' or 'TemplateProcessing'"),
    ("the text twice", frame(single=[TEXT, TEXT]), "post_processor: single: got .*, expected the text once"),
    ("a long frame", frame(single=[TEXT, *[FIRST] * 8]), "post_processor: single: got .*, expected the text"),
    ("a frame of no token", frame(id=96), r"x: ids: got \[96\], expected one id below vocab_size"),
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


@pytest.mark.parametrize(
    ("change", "ids"),
    [
        (words(QWEN, BYTES | {"use_regex": False}), [64, 64]),
        (words({"type": "Digits", "individual_digits": True}, BYTES), [64, 64]),
        (normalizer(NFC), [64, 64]),
        (normalizer(), [64, 64]),
        (field("tokenizer.json", post_processor=BYTES), [64, 64]),
        (frame(), [5, 64, 64]),
    ],
)
def test_the_steps_of_published_tokenizers_are_accepted(folder, change, ids):
    change(folder)
    assert load(str(folder)).tokenizer.encode("aa") == ids


def test_the_panic_above_is_one(folder):
    """The library raises a BaseException, which would end the program."""
    model(**PANIC)(folder)
    with pytest.raises(BaseException, match=r"range|bounds") as panic:
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert not isinstance(panic.value, Exception)


@pytest.mark.parametrize(
    "change", [words(SLOW, BYTES), model(unk_token="gone", merges=[])], ids=["panic", "error"]
)
def test_whatever_fails_at_a_text_is_one_sentence(folder, change):
    """Even if a file got past the checks."""
    change(folder)
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    with pytest.raises(LoadError, match=r"^tokenizer.json: could not encode the text \(.*\); the file is"):
        Tokenizer(library, [3], None).encode("a" * 40 + "b\0")
