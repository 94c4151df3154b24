"""Texts that are too long are refused by their characters, before anything is rendered or encoded."""

from collections.abc import Iterable

from ..errors import ApiError
from ..models import ServedModel
from ..settings import Settings


def check_chars(param: str, texts: Iterable[str], model: ServedModel, settings: Settings) -> None:
    """400 if these texts together never fit into the context, or are longer than any prompt may be."""
    most = min(settings.max_prompt_chars, model.most_chars)
    if sum(map(len, texts)) > most:
        sentence = f"{param}: the prompt is too long: expected at most {most} characters"
        raise ApiError(400, sentence, param=param, code="context_length_exceeded")
