"""Tokenizers in the style of SentencePiece, as Llama 2 and Mistral have them, against the library itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import tokenizers
from hypothesis import given, settings
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tiny_llm.loading.config import read_config
from tiny_llm.loading.tokenizer.read_tokenizer import DECODERS, STRIP, read_tokenizer
from tiny_llm.loading.tokenizer.tokenizer import Tokenizer

from ..support.models.checkpoints import checkpoint
from .damage import Damage, assert_refused, field
from .folders import change_json, write_folder, write_json

META = "\u2581"
WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), META, *"eloh\u00e9"]
MERGES = [("l", "l"), ("h", "e"), ("he", "ll"), ("hell", "o"), (META, "hello"), (META, META)]


def library(style: str) -> tokenizers.Tokenizer:
    """The steps of transformers: "old" of Llama 2, "new" of later models, "bare" adds no space to a text."""
    words = [*WORDS, *(a + b for a, b in MERGES)]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    if style == "old":
        made.normalizer = normalizers.Sequence([normalizers.Prepend(META), normalizers.Replace(" ", META)])
    else:
        scheme = "never" if style == "bare" else "first"
        made.pre_tokenizer = pre_tokenizers.Metaspace(META, scheme, split=False)
    steps = [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps[:3] if style == "bare" else steps)
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return made


def folder_of(path: Path, style: str) -> Path:
    folder = write_folder(path, checkpoint("llama", layers=1, vocabulary=512))
    library(style).save(str(folder / "tokenizer.json"))
    change_json(folder, "generation_config.json", eos_token_id=2)
    change_json(folder, "tokenizer_config.json", bos_token="<s>", eos_token="</s>")
    return folder


@pytest.fixture(scope="module", params=["old", "new", "bare"])
def both(request, tmp_path_factory) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    folder = folder_of(tmp_path_factory.mktemp("model"), request.param)
    return read_tokenizer(folder, read_config(folder)), library(request.param)


@settings(max_examples=200, deadline=None)
@given(text=st.text("hello \u00e9\u20ac\U0001f999\n", max_size=30))
def test_texts_are_encoded_and_decoded_as_by_the_library(both, text):
    ours, theirs = both
    ids = ours.encode(text, add_special_tokens=False)
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text) == [1, *ids]
    decoded = theirs.decode(ids)
    assert decoded in (text, text.removeprefix(" "))  # the new style adds no space to one
    assert ours.decode(ids) == decoded


def test_an_answer_goes_on_after_its_prompt(both):
    """The space of its first word is part of it, as in the text of all ids."""
    ours, _ = both
    ids = ours.encode("hello hello hello", add_special_tokens=False)
    detokenizer = ours.detokenizer
    for token in ids[1:]:
        detokenizer.add_token(token)
    assert ours.decode(ids[:1]) + detokenizer.text == ours.decode(ids) == "hello hello hello"


def test_special_tokens_keep_the_space_after_them(both):
    """Only a space before the whole text is none of it."""
    ours, _ = both
    ids = ours.encode("<s>hello</s> hello", add_special_tokens=False)
    assert ours.decode(ids[1:]).startswith("hello</s> ")


def test_a_byte_token_is_its_byte(both):
    ours, _ = both
    assert ours.token_bytes(3 + 0xE2) == b"\xe2"
    assert ours.token_bytes(WORDS.index("\u00e9")) == "\u00e9".encode()
    assert ours.token_bytes(WORDS.index(META)) == b" "


PREPEND = {"type": "Prepend", "prepend": META}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": META}


METASPACE = {"type": "Metaspace", "replacement": META, "prepend_scheme": "first", "split": False}
CTC = {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": False}


def decoder(*given: dict[str, Any]) -> Damage:
    return field("tokenizer.json", decoder={"type": "Sequence", "decoders": list(given)})


def no_fallback(folder: Path) -> None:
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["model"]["byte_fallback"] = False
    write_json(folder, "tokenizer.json", whole)


def steps(*given: dict[str, Any]) -> Damage:
    return field("tokenizer.json", normalizer={"type": "Sequence", "normalizers": list(given)})


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (steps(PREPEND, PREPEND, REPLACE), "normalizer: .*expected 'Prepend' and 'Replace', once"),
        (steps(PREPEND | {"prepend": "a" * 9}), "prepend: got 'aaaaaaaaa', expected"),
        (steps(REPLACE | {"content": "aaaa"}), "content: got 'aaaa', expected"),
        (steps(REPLACE | {"pattern": {"Regex": "(a|a)+"}}), "pattern: String: got nothing, expected ' '"),
        (field("tokenizer.json", pre_tokenizer={"type": "Whitespace"}), "expected 'Metaspace'"),
        (decoder(), "decoder: got .*, expected 'Replace', 'ByteFallback' and 'Fuse'"),
        (decoder(CTC), "decoder: got .*, expected 'Replace', 'ByteFallback' and 'Fuse'"),
        (decoder(*DECODERS, STRIP | {"content": "h"}), "decoder: got"),
        (decoder(*DECODERS, STRIP | {"start": 3}), "decoder: got"),
        (decoder(DECODERS[0] | {"pattern": {"String": "l"}}, *DECODERS[1:]), "decoder: got"),
        (decoder(DECODERS[0], DECODERS[2]), "decoder: got"),
        (field("tokenizer.json", pre_tokenizer=METASPACE | {"replacement": "aa"}), "replacement: got 'aa'"),
        (no_fallback, "byte_fallback: got False, expected true"),
    ],
)
def test_other_steps_are_refused(tmp_path: Path, damage: Damage, sentence: str) -> None:
    folder = folder_of(tmp_path / "model", "old")
    read_tokenizer(folder, read_config(folder))
    damage(folder)
    assert_refused(folder, sentence)
