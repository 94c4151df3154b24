"""Which answers a grammar allows."""

from __future__ import annotations

from typing import Any

from tiny_llm.sampling.grammar import Grammar, start_grammar

from .fake_engine import embedded_tokenizer


def follows(grammar: Grammar, text: str, tokenizer: Any = None) -> bool:
    """Whether a whole answer may be this text, in the tokens of a tokenizer: the embedded one by default."""
    tokenizer = tokenizer or embedded_tokenizer()
    state = start_grammar(tokenizer, grammar)
    ids = tokenizer.encode(text, add_special_tokens=False)
    if state.count_valid(ids) < len(ids):
        return False
    state.accept(ids)
    return state.is_complete
