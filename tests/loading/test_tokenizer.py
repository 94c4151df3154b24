"""Text to ids and back: as a whole, and token by token in time that does not grow with the text."""

from __future__ import annotations

import tracemalloc

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tiny_llm.generation.text import TextStream, new_detokenizer
from tiny_llm.loading.config import read_config
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.loading.tokenizer.read_tokenizer import read_tokenizer
from tiny_llm.loading.tokenizer.tokenizer import BYTES, Tokenizer
from tiny_llm.loading.weights.random_model import random_config


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """That of the embedded model: 4096 tokens over all bytes."""
    return read_tokenizer(EMBEDDED, read_config(EMBEDDED))


def test_bytes_are_written_as_the_library_writes_them(tokenizer):
    assert sorted(BYTES.values()) == list(range(256))
    singles = {token: i for token, i in tokenizer.get_vocab().items() if len(token) == 1}
    assert singles.keys() == BYTES.keys()


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_encoding_and_decoding_give_the_text_back(tokenizer, text):
    """Up to Unicode normalisation, which the tokenizer does first."""
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer._tokenizer.normalizer.normalize_str(text)


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 4095), max_size=40))
def test_ids_decode_as_in_the_library(tokenizer, ids):
    """Also token by token: all except an incomplete character, which appears at the end."""
    expected = tokenizer._tokenizer.decode(ids, skip_special_tokens=False)
    assert tokenizer.decode(ids) == expected
    detokenizer = tokenizer.detokenizer
    pieces = []
    for i, token in enumerate(ids):
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
        so_far = tokenizer._tokenizer.decode(ids[: i + 1], skip_special_tokens=False)
        assert so_far.rstrip("\ufffd").startswith(detokenizer.text.rstrip("\ufffd"))
    detokenizer.finalize()
    assert "".join([*pieces, detokenizer.last_segment]) == detokenizer.text == expected


def test_no_piece_ends_inside_a_character(tokenizer):
    text = "a é 漢字 👩‍👩‍👧 🇩🇪 e\u0301"
    ids = tokenizer.encode(text)
    assert len(ids) > len(text)
    stream = TextStream(new_detokenizer(tokenizer))
    pieces = [stream.add(token) for token in ids] + [stream.finish()]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == tokenizer.decode(ids)


def test_the_text_is_extended_in_place(tokenizer):
    """A copy for each token would make long answers slow and need twice the memory."""
    stream = TextStream(new_detokenizer(tokenizer))
    (token,) = tokenizer.encode("a")
    detokenizer = stream._detokenizer
    tracemalloc.start()
    try:
        detokenizer._append("a" * 1_000_000)
        tracemalloc.reset_peak()
        for _ in range(100):
            stream.add(token)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(detokenizer.text) == 1_000_100
    assert peak < 1_500_000


def test_two_answers_do_not_share_a_detokenizer(tokenizer):
    first, second = tokenizer.detokenizer, new_detokenizer(tokenizer)
    first.add_token(40)
    assert second.text == ""
    first.reset()
    assert first.text == first.last_segment == ""


def test_ids_without_a_token_are_shown_as_numbers():
    """The model has more ids than the tokenizer has tokens."""
    tokenizer = read_tokenizer(EMBEDDED, random_config("qwen2-0.5b"))
    hello = tokenizer.encode("Hello")
    assert tokenizer.decode([*hello, 4096, 151935]) == "Hello<4096><151935>"


def test_special_tokens_in_a_text_become_their_ids(tokenizer):
    assert tokenizer.encode("<|im_end|>") == [2]
    assert tokenizer.decode([1, 2]) == "<|im_start|><|im_end|>"


def test_half_a_surrogate_pair_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"^encode: text: got 'a\\ud800', expected no lone surrogates$"):
        tokenizer.encode("a\ud800")
