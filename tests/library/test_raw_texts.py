"""A raw text begins with the token that the tokenizer puts first; in a rendered one it is already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_llm import LLM

from ..loading.folders import END, change_json, small_tokenizer, write_folder
from ..support.models.checkpoints import VOCABULARY, checkpoint

FIRST = VOCABULARY - 1


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """Like a Llama 3: its template writes the first token."""
    from tokenizers.processors import TemplateProcessing

    folder: Path = write_folder(tmp_path_factory.mktemp("model"), checkpoint("llama", layers=1))
    tokenizer = small_tokenizer()
    tokenizer.post_processor = TemplateProcessing(f"{END} $A", special_tokens=[(END, FIRST)])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    change_json(folder, "tokenizer_config.json", bos_token=END, chat_template=template)
    return LLM(str(folder))


def test_both_get_it_once(llm: LLM) -> None:
    assert llm.tokenizer.encode("ab") == [FIRST, *llm.tokenizer.encode("ab", add_special_tokens=False)]
    raw = llm.generate("ab", max_tokens=2)
    assert raw.statistics.prompt_tokens == 3
    assert llm.chat("ab", max_tokens=2).token_ids == raw.token_ids
    (listed,) = llm.generate(["ab"], max_tokens=2)
    streamed = llm.stream("ab", max_tokens=2)
    assert "".join(streamed) == raw.text == listed.text
    assert listed.statistics.prompt_tokens == streamed.result.statistics.prompt_tokens == 3
    answered = llm.stream([{"role": "user", "content": "ab"}], max_tokens=2)
    assert "".join(answered) == raw.text
