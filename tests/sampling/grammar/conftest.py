"""What the tests of grammars share."""

import pytest

from tiny_llm import load


@pytest.fixture(scope="module")
def tokenizer():
    return load("tiny").tokenizer
