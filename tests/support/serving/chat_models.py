"""Tokenizers whose chat templates have what Qwen's have: tools, and a switch for thinking."""

from __future__ import annotations

from typing import Any

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
    embedded = embedded_tokenizer()
    return Tokenizer(
        embedded._tokenizer, sorted(embedded.eos_token_ids), ChatTemplate(template, {}, trusted=True)
    )
