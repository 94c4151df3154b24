"""Structured output: answers that follow a JSON schema, a regular expression or a Lark grammar."""

from .compiler import compile_grammar, find_grammar, start_grammar
from .grammar import Grammar, read_response_format
from .state import GrammarState, apply_masks

__all__ = [
    "Grammar",
    "GrammarState",
    "apply_masks",
    "compile_grammar",
    "find_grammar",
    "read_response_format",
    "start_grammar",
]
