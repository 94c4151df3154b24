"""Chat templates: programs in a model's folder. Ours run here, all others in a process that can be killed."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LoadError

PROCESS = Path(__file__).with_name("template_process.py")
LONGEST_TEXT = 2**20  # characters
LONGEST_ANSWER = 16 * 2**20  # bytes that are read from the process; a character takes up to 12


@dataclass(frozen=True)
class ChatTemplate:
    """A template in the language of jinja2, and the special tokens that it may name."""

    source: str
    special_tokens: Mapping[str, str]
    trusted: bool = False  # only for what ships with this package
    seconds: float = 10.0  # how long an untrusted one may take

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The text of a chat; a template that fails, or takes too long or too much, is a LoadError."""
        length = sum(len(text) for message in messages for text in message.values() if isinstance(text, str))
        if length > LONGEST_TEXT:
            raise LoadError(f"prompt: got {length} characters, expected at most {LONGEST_TEXT}")
        variables = {**self.special_tokens, "messages": list(messages), "tools": None, **options}
        request: dict[str, Any] = {"source": self.source, "variables": variables, "longest": LONGEST_TEXT}
        if self.trusted:
            from .template_process import answer  # not above: jinja2 takes its time to import

            result = answer(**request)
        else:
            result = self._ask_process(json.dumps(request))
        if "error" in result:
            raise LoadError(f"chat_template: {result['error']}")
        return result["text"]

    def _ask_process(self, request: str) -> dict[str, str]:
        with subprocess.Popen(
            [sys.executable, "-P", str(PROCESS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            timer = threading.Timer(self.seconds, process.kill)
            timer.start()
            try:
                process.stdin.write(request.encode())
                process.stdin.close()
                written = process.stdout.read(LONGEST_ANSWER)
            except BrokenPipeError:
                written = b""
            finally:
                in_time = timer.is_alive()
                timer.cancel()
                process.kill()
        try:
            result: dict[str, str] = json.loads(written)
        except ValueError as error:
            reason = "ended without an answer" if in_time else f"took more than {self.seconds:g} s"
            raise LoadError(f"chat_template: the template {reason} and was stopped") from error
        return result
