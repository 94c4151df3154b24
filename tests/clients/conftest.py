"""A server whose model says what a test wants, one answer after another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tiny_llm.engine import EngineRequest

from ..support.serving import chat_models
from ..support.serving.fake_engine import FakeEngine, FakeHandle
from ..support.serving.running import RunningServer, running

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"  # or it asks another server when it is imported
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"


@dataclass
class Model(FakeEngine):
    """`answers` are its next ones, in order; then the last one again."""

    answers: list[str] = field(default_factory=list)

    def submit(self, request: EngineRequest) -> FakeHandle:
        if self.answers:
            self.script = self.answers.pop(0)
        return super().submit(request)

    def says(self, *answers: str) -> None:
        self.answers = list(answers)

    @property
    def prompt(self) -> str:
        """Of the last request, by the chat template."""
        return self.tokenizer.decode(self.requests[-1].prompt_ids)


@pytest.fixture
def model() -> Model:
    template = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING
    return Model(tokenizer=chat_models.tokenizer_with(template))


@pytest.fixture
def server(model: Model) -> Iterator[RunningServer]:
    """Its model has the name "fake"."""
    with running(model) as started:
        yield started


def call(name: str, arguments: str) -> str:
    """A call of a function, as Qwen's models write it; `arguments` is JSON."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
