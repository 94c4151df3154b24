"""A raw text begins with the token that the tokenizer puts first, once; a rendered one has it already."""

from __future__ import annotations

import pytest

from tiny_llm import LLM, ChatSession

from ..loading.folders import END, write_llama
from ..support.models.checkpoints import VOCABULARY

IDS = (VOCABULARY - 1, 64, 65)  # of END, "a" and "b"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(str(write_llama(tmp_path_factory.mktemp("model"))))


def test_the_token_comes_once(llm: LLM) -> None:
    tokenizer = llm.tokenizer
    assert tokenizer.first_text == END
    assert (tuple(tokenizer.encode_raw("ab")), tuple(tokenizer.encode_raw(f"{END}ab"))) == (IDS, IDS)


def test_each_way_to_generate_has_it(llm: LLM) -> None:
    messages = [{"role": "user", "content": "ab"}]
    raw, chat = llm.generate("ab", max_tokens=2), llm.chat("ab", max_tokens=2)
    (listed,) = llm.generate([f"{END}ab"], max_tokens=2)
    results = [raw, chat, listed]
    for prompt in ("ab", messages):
        stream = llm.stream(prompt, max_tokens=2)
        assert "".join(stream) == raw.text
        results.append(stream.result)
    results.append(ChatSession(llm).ask("ab", max_tokens=2))
    assert {(result.text, result.statistics.prompt_tokens) for result in results} == {(raw.text, len(IDS))}
