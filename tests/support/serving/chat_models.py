"""Tokenizers whose chat templates have what Qwen's have: tools, and a switch for thinking."""

from __future__ import annotations

from typing import Any

import tokenizers

from tiny_llm.loading.tokenizer.chat_template import ChatTemplate
from tiny_llm.loading.tokenizer.tokenizer import Tokenizer

from .fake_engine import embedded_tokenizer

MESSAGES = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}
<|im_end|>
{% endfor -%}
<|im_start|>assistant
"""
TOOLS = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
THINKING = "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS_THINKING = "<think>\n"


def tokenizer_with(template: str) -> Any:
    """The embedded tokenizer with another chat template."""
    return _with(template, embedded_tokenizer()._tokenizer)


def tokenizer_with_tags(template: str) -> Any:
    """The same, in which tags are tokens, as in those of Qwen."""
    library = tokenizers.Tokenizer.from_str(embedded_tokenizer().definition)
    tags = ("<tool_call>", "</tool_call>", "<think>", "</think>")
    library.add_tokens([tokenizers.AddedToken(tag, normalized=False, special=False) for tag in tags])
    return _with(template, library)


def tokenizer_that_begins(template: str) -> Any:
    """The same, which begins each text with a special token."""
    library = tokenizers.Tokenizer.from_str(embedded_tokenizer().definition)
    begin = "<|im_start|>"
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, library.token_to_id(begin))]
    )
    return _with(template, library)


def _with(template: str, library: tokenizers.Tokenizer) -> Any:
    ends = sorted(embedded_tokenizer().eos_token_ids)
    return Tokenizer(library, ends, ChatTemplate(template, {}, trusted=True))
