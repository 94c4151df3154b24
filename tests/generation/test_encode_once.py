"""Each prompt of a list is tokenized once."""

import pytest

from tiny_llm import LLM
from tiny_llm.batch import batch_generate

from ..support.generation.byte_text import ByteTokenizer
from ..support.generation.fake_models import CachedFake
from ..support.generation.rules import random_rule

PROMPTS = ["one", "two and three", "four"]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch):
    """Counts `encode` of a tokenizer: returns the list of the texts that it encodes from now on."""

    def record(tokenizer) -> list[str]:
        texts, encode = [], tokenizer.encode

        def recorded(text, **options):
            texts.append(text)
            return encode(text, **options)

        monkeypatch.setattr(tokenizer, "encode", recorded)
        return texts

    return record


def test_batch_generate_encodes_each_prompt_once(encoded) -> None:
    tokenizer = ByteTokenizer()
    texts = encoded(tokenizer)
    batch_generate(CachedFake(random_rule()), tokenizer, PROMPTS, max_seq_len=20)
    assert texts == PROMPTS


def test_generate_encodes_each_prompt_of_a_list_once(encoded) -> None:
    llm = LLM("tiny")
    texts = encoded(llm.tokenizer)
    assert len(llm.generate(PROMPTS, max_tokens=2)) == 3
    assert texts == PROMPTS
