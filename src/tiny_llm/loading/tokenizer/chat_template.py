"""Chat templates: programs in a model's folder. Ours run here, all others in a process that can be killed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError
from ..errors import LoadError
from .template_worker import TemplateWorker

LONGEST_TEXT = 2**20  # characters
WORKER = TemplateWorker()


@dataclass(frozen=True)
class ChatTemplate:
    """A template in the language of jinja2, and the special tokens that it may name."""

    source: str
    special_tokens: Mapping[str, str]
    trusted: bool = False  # only for what ships with this package
    seconds: float = 10.0  # how long an untrusted one may take

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The text of a chat, which itself must not be too long.

        A template that fails, or takes too long or too much, is a LoadError.
        """
        length = sum(len(text) for message in messages for text in message.values() if isinstance(text, str))
        if length > LONGEST_TEXT:
            raise ArgumentError(
                "apply_chat_template", "messages", f"{length} characters", f"at most {LONGEST_TEXT}"
            )
        variables = {**self.special_tokens, "messages": list(messages), "tools": None, **options}
        request: dict[str, Any] = {"source": self.source, "variables": variables, "longest": LONGEST_TEXT}
        if self.trusted:
            from .template_process import answer  # not above: jinja2 takes its time to import

            result = answer(**request)
        else:
            result = WORKER.ask(request, self.seconds)
        if "error" in result:
            raise LoadError(f"chat_template: {result['error']}")
        return result["text"]
