"""instructor: objects of a class, in each of its modes, asked again after a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients


class City(BaseModel):
    name: str
    people: int

    @field_validator("people")
    @classmethod
    def counted(cls, people: int) -> int:
        if people < 1:
            raise ValueError("nobody lives there")
        return people


def objects(mode: str) -> tuple[str, str]:
    """A wrong and a right answer in a mode."""
    written = '{"name": "Paris", "people": 0}', '{"name": "Paris", "people": 2}'
    if "TOOLS" in mode:
        return call("City", written[0]), call("City", written[1])
    return written


@pytest.mark.parametrize("mode", ["TOOLS", "JSON", "JSON_SCHEMA"])
def test_openai(model: Model, server: RunningServer, mode: str) -> None:
    import instructor
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    made: Any = instructor.from_openai(client, mode=instructor.Mode[mode])
    model.says(*objects(mode))
    question: Any = [{"role": "user", "content": "Which city?"}]
    city = made.chat.completions.create(model="fake", messages=question, response_model=City, max_retries=2)
    assert city.model_dump() == {"name": "Paris", "people": 2}
    assert "nobody lives there" in model.prompt
    assert model.requests[-1].grammar is not None


@pytest.mark.parametrize("mode", ["TOOLS", "JSON"])
def test_anthropic(model: Model, server: RunningServer, mode: str) -> None:
    import anthropic
    import instructor

    client = anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0)
    made: Any = instructor.from_anthropic(client, mode=instructor.Mode[mode])
    model.says(*objects(mode))
    question: Any = [{"role": "user", "content": "Which city?"}]
    city = made.messages.create(
        model="fake", messages=question, response_model=City, max_retries=2, max_tokens=200
    )
    assert city.model_dump() == {"name": "Paris", "people": 2}
    assert "nobody lives there" in model.prompt
