"""anthropic: its loop over tools, typed answers and counts of tokens."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients
USER: Any = {"role": "user", "content": "Weather in Paris?"}


class City(BaseModel):
    name: str


@pytest.fixture
def client(server: RunningServer) -> Any:
    import anthropic

    return anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0)


@pytest.mark.parametrize("stream", [False, True])
def test_it_runs_tools_until_there_is_an_answer(model: Model, client: Any, stream: bool) -> None:
    import anthropic

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather.

        Args:
            city: its name
        """
        return f"sunny in {city}"

    model.says(call("weather", '{"city": "Paris"}'), "It is sunny.")
    runner = client.beta.messages.tool_runner(
        model="fake", max_tokens=200, messages=[USER], tools=[weather], stream=stream
    )
    assert runner.until_done().content[0].text == "It is sunny."
    assert "<|im_start|>tool\nsunny in Paris" in model.prompt


def test_an_answer_has_a_type(model: Model, client: Any) -> None:
    model.says('{"name": "Paris"}')
    answer = client.messages.parse(model="fake", max_tokens=200, messages=[USER], output_format=City)
    assert answer.parsed_output == City(name="Paris")
    assert model.requests[-1].grammar is not None


def test_tokens_are_counted(model: Model, client: Any) -> None:
    counted = client.messages.count_tokens(model="fake", messages=[USER])
    client.messages.create(model="fake", max_tokens=2, messages=[USER])
    assert counted.input_tokens == len(model.requests[-1].prompt_ids)
