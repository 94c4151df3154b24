"""Chat templates. Those of downloaded models run in a sandboxed process with limits of time and memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checks.types import kind
from ...errors import ArgumentError, ArgumentTypeError, LoadError
from ...runtime.worker_process import WorkerProcess, WorkerStopped

MAX_TEXT_CHARS = 2**20  # characters

# One process for the templates of all models, started at the first request.
TEMPLATE_WORKER = WorkerProcess(Path(__file__).with_name("template_process.py"))


@dataclass(frozen=True)
class ChatTemplate:
    """A jinja2 template, and the special tokens that it may name."""

    source: str
    special_tokens: Mapping[str, str]
    trusted: bool = False  # only for the embedded model
    seconds: float = 10.0  # time limit of one rendering in the process

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The prompt for a chat of at most `MAX_TEXT_CHARS` characters.

        A template that fails, or takes too much time or memory, is a LoadError.
        """
        length = sum(len(text) for message in messages for text in message.values() if isinstance(text, str))
        if length > MAX_TEXT_CHARS:
            raise ArgumentError(
                "apply_chat_template", "messages", f"{length} characters", f"at most {MAX_TEXT_CHARS}"
            )
        variables = {**self.special_tokens, "messages": list(messages), "tools": None, **options}
        request: dict[str, Any] = {"source": self.source, "variables": variables, "max_chars": MAX_TEXT_CHARS}
        if self.trusted:
            from .template_process import handle  # jinja2 is slow to import

            result = handle(**request)
        else:
            try:
                result = TEMPLATE_WORKER.request(json.dumps(request, default=_json_default), self.seconds)
            except WorkerStopped as stopped:
                raise LoadError(f"chat_template: the template {stopped} and was stopped") from stopped
        if "error" in result:
            raise LoadError(f"chat_template: {result['error']}")
        return result["text"]


def _json_default(value: object) -> dict[Any, Any]:
    """A dict for a mapping of another class; ArgumentTypeError for any other object."""
    if isinstance(value, Mapping):
        return dict(value)
    expected = "texts, numbers, lists and dictionaries, which can be written as JSON"
    raise ArgumentTypeError("apply_chat_template", "messages", f"{kind(value)} inside", expected)
