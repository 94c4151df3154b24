"""Streamed text: pieces are whole characters, and joined they are the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_llm.generation.text import TextStream, new_detokenizer

from ..support.generation.byte_text import ByteDetokenizer, ByteTokenizer, LookAheadDetokenizer, as_text

TRY = settings(max_examples=300)
DETOKENIZERS = st.sampled_from([ByteDetokenizer, LookAheadDetokenizer])


@TRY
@given(
    st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), max_size=12), DETOKENIZERS
)
def test_the_pieces_of_a_text_are_its_characters(text, detokenizer):
    stream = TextStream(detokenizer())
    pieces = [stream.add(token) for token in text.encode()] + [stream.finish()]
    assert [piece for piece in pieces if piece] == list(text)


@TRY
@given(st.binary(max_size=20), DETOKENIZERS)
def test_any_bytes_give_the_text_of_all_bytes(tokens, detokenizer):
    """Invalid bytes appear as U+FFFD inside the text, but not at its end."""
    stream = TextStream(detokenizer())
    pieces = [stream.add(token) for token in tokens] + [stream.finish()]
    assert "".join(pieces) == as_text(list(tokens))
    assert not any(piece.endswith("\ufffd") for piece in pieces)


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_each_stream_has_its_own_detokenizer(shared):
    tokenizer = ByteTokenizer(shared=shared)
    tokenizer.detokenizer.add_token(ord("?"))
    one, two = new_detokenizer(tokenizer), new_detokenizer(tokenizer)
    one.add_token(ord("1"))
    two.add_token(ord("2"))
    tokenizer.detokenizer.add_token(ord("?"))
    assert (one.text, two.text) == ("1", "2")
