"""The keyword arguments of an answer that `LLM` shares among its calls."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..sampling.grammar import Grammar

ResponseFormat = Grammar | Mapping[str, Any]  # a mapping is a JSON schema
# For `calling`: what the functions of `sampling.grammar` call this argument.
FORMAT = {"schema": "response_format", "grammar": "response_format"}


class AnswerOptions(TypedDict, total=False):
    """Keyword arguments for each answer."""

    max_tokens: int | None
    stop: str | Sequence[str] | None
    logprobs: int | None
    response_format: ResponseFormat | None
