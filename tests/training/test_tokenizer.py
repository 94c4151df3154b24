"""The tokenizer of the embedded model, and the rows of tokens for training."""

import json
import random

import numpy as np
import pytest

from training.corpus.batches import LENGTHS, Encoder, in_rows, rows_per_step, shard
from training.corpus.mixture import conversation, messages
from training.tokenizer import CHAT_TEMPLATE, END, END_OF_TEXT, LONGEST, START
from training.train import EMBEDDED

FILE = EMBEDDED / "tokenizer.json"


@pytest.fixture(scope="module")
def encode() -> Encoder:
    return Encoder(FILE)


def test_the_vocabulary(encode):
    assert encode.tokenizer.get_vocab_size() == 4096
    assert [encode.tokenizer.token_to_id(mark) for mark in (END_OF_TEXT, START, END)] == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", " ", "Once upon a time\n", "12 * 12 = 144", "café Ünïcode 日本 🙂", "a\tb\x00c", "<|im_end>"]
)
def test_decoding_restores_any_text(encode, text):
    assert encode.tokenizer.decode(encode.ids(text), skip_special_tokens=False) == text


def test_a_number_is_read_digit_by_digit(encode):
    marks = [encode.tokenizer.id_to_token(i) for i in encode.ids("9075")]
    assert marks == ["9", "0", "7", "5"]


def test_the_generated_text_is_compact(encode):
    rng = random.Random(0)
    texts = [m["content"] for _ in range(300) for m in messages(rng, conversation(rng)[1])]
    texts = [text for text in texts if len(text) < LONGEST]  # the long ones are noise on purpose
    assert sum(map(len, texts)) > 3.5 * sum(len(encode.ids(text)) for text in texts)


def test_the_shipped_chat_template_is_the_trained_one():
    assert json.loads((EMBEDDED / "tokenizer_config.json").read_text())["chat_template"] == CHAT_TEMPLATE


def test_only_the_assistants_tokens_are_learned(encode):
    chat = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "2 + 2"},
        {"role": "assistant", "content": "2 + 2 = 4."},
    ]
    tokens, learned = encode(chat)
    text = encode.tokenizer.decode([t for t, m in zip(tokens, learned, strict=True) if m], False)
    assert text == f"2 + 2 = 4.{END}"
    whole = encode.tokenizer.decode(tokens, skip_special_tokens=False)
    assert whole.startswith(f"{START}system\nBe short.{END}\n{START}user\n2 + 2{END}\n{START}assistant\n")


def test_every_conversation_gets_the_shortest_row_that_fits():
    ids = list(range(1, 2100))
    pairs = [(ids[:size], [True] * size) for size in (2, 33, 34, 49, 769, 1500, 2049)]
    rows = in_rows(pairs)
    assert {length: len(tokens) for length, (tokens, _) in rows.items() if len(tokens)} == {
        32: 2,
        48: 2,
        1024: 1,
        2047: 1,
    }
    tokens, learned = rows[32]
    assert tokens[0].tolist() == [1, 2] + [0] * 31
    assert learned.sum(axis=1).tolist() == [2, 33]


def test_a_shard_depends_only_on_its_seed_and_number():
    first, again, other = shard((FILE, 0, 4, 20)), shard((FILE, 0, 4, 20)), shard((FILE, 0, 5, 20))
    assert all(np.array_equal(first[n][0], again[n][0]) for n in LENGTHS)
    assert not all(np.array_equal(first[n][0], other[n][0]) for n in LENGTHS)
    assert set(rows_per_step(first, 4096)) == set(LENGTHS)
