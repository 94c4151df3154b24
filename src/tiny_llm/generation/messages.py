"""The messages of a chat, and the prompt that a model's chat template makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..checks.types import check_type, kind
from ..errors import ArgumentError, ArgumentTypeError

Message = Mapping[str, str]


class RawText(str):
    """A prompt that no chat template has made."""


def build_messages(system: str, turns: list[tuple[str, str]], question: str) -> list[dict[str, str]]:
    """A system message if `system` is not empty, each turn's question and answer, then the new question."""
    messages = [{"role": "system", "content": system}] if system else []
    for user, assistant in turns:
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return [*messages, {"role": "user", "content": question}]


def render_prompt(
    function: str, model: str, tokenizer: Any, messages: str | Sequence[Message], enable_thinking: bool
) -> str:
    """The prompt for `messages`; a str counts as one message of the user.

    `model` is the name of the model, for the text of an error.
    """
    check_type(function, "enable_thinking", enable_thinking, bool, "a bool")
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence):
        raise ArgumentTypeError(function, "messages", kind(messages), "a text or a list of messages")
    if not messages:
        raise ArgumentError(function, "messages", "none", "at least one")
    for index, message in enumerate(messages):
        fields = message if isinstance(message, Mapping) else {}
        if not all(isinstance(fields.get(name), str) for name in ("role", "content")):
            expected = "a dictionary with the texts role and content"
            raise ArgumentTypeError(function, f"messages[{index}]", repr(message)[:80], expected)
    plain: str = tokenizer.apply_chat_template(messages)
    if not enable_thinking:
        return plain
    thinking: str = tokenizer.apply_chat_template(messages, enable_thinking=True)
    if thinking == plain:
        expected = f"False: the chat template of {model} has no such switch"
        raise ArgumentError(function, "enable_thinking", True, expected)
    return thinking
