"""Tokenizers in the style of SentencePiece, as Llama 2 and Mistral have them, against the library itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import tokenizers
from hypothesis import given, settings
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tiny_llm.loading.config import read_config
from tiny_llm.loading.tokenizer.read_tokenizer import read_tokenizer
from tiny_llm.loading.tokenizer.tokenizer import Tokenizer

from ..support.models.checkpoints import checkpoint
from .damage import Damage, assert_refused, field
from .folders import change_json, write_folder

META = "\u2581"
WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), META, *"eloh\u00e9"]
MERGES = [("l", "l"), ("h", "e"), ("he", "ll"), ("hell", "o"), (META, "hello"), (META, META)]


def library(style: str) -> tokenizers.Tokenizer:
    """The steps of transformers: "old" of Llama 2, "new" of later models."""
    words = [*WORDS, *(a + b for a, b in MERGES)]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    if style == "old":
        made.normalizer = normalizers.Sequence([normalizers.Prepend(META), normalizers.Replace(" ", META)])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(META, "first", split=False)
    steps = [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return made


def folder_of(path: Path, style: str) -> Path:
    folder = write_folder(path, checkpoint("llama", layers=1, vocabulary=512))
    library(style).save(str(folder / "tokenizer.json"))
    change_json(folder, "generation_config.json", eos_token_id=2)
    change_json(folder, "tokenizer_config.json", bos_token="<s>", eos_token="</s>")
    return folder


@pytest.fixture(scope="module", params=["old", "new"])
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
    detokenizer = ours.detokenizer
    for token in ids:
        detokenizer.add_token(token)
    detokenizer.finalize()
    assert detokenizer.text == decoded


def test_special_tokens_keep_the_space_after_them(both):
    """Only a space before the whole text is none of it."""
    ours, _ = both
    ids = ours.encode("<s>hello</s> hello", add_special_tokens=False)
    assert ours.decode(ids[1:]).startswith("hello</s> ")
    detokenizer = ours.detokenizer
    for token in ids[1:]:
        detokenizer.add_token(token)
    assert detokenizer.text == ours.decode(ids[1:])


def test_a_byte_token_is_its_byte(both):
    ours, _ = both
    assert ours.token_bytes(3 + 0xE2) == b"\xe2"
    assert ours.token_bytes(WORDS.index("\u00e9")) == "\u00e9".encode()
    assert ours.token_bytes(WORDS.index(META)) == b" "


PREPEND = {"type": "Prepend", "prepend": META}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": META}


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
        (field("tokenizer.json", decoder={"type": "Sequence", "decoders": [{"type": "CTC"}]}), "got 'CTC'"),
    ],
)
def test_other_steps_are_refused(tmp_path: Path, damage: Damage, sentence: str) -> None:
    folder = folder_of(tmp_path / "model", "old")
    read_tokenizer(folder, read_config(folder))
    damage(folder)
    assert_refused(folder, sentence)
