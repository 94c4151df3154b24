"""pydantic-ai: tools and typed answers, on both interfaces of OpenAI."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients
WEATHER = call("weather", '{"city": "Paris"}')


class City(BaseModel):
    name: str
    people: int


@pytest.fixture(params=["OpenAIChatModel", "OpenAIResponsesModel"])
def client(request: pytest.FixtureRequest, server: RunningServer) -> Any:
    from pydantic_ai.models import openai
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="unused")
    return getattr(openai, request.param)("fake", provider=provider)


def test_a_tool_is_called_and_its_result_reaches_the_model(model: Model, client: Any) -> None:
    from pydantic_ai import Agent

    agent = Agent(client, instructions="Be brief.")

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    model.says(f"I look.\n{WEATHER}", "It is sunny.")
    assert agent.run_sync("Weather in Paris?").output == "It is sunny."
    assert "<|im_start|>tool\nsunny in Paris" in model.prompt
    assert model.prompt.index("Be brief.") < model.prompt.index("Weather in Paris?")


def test_an_answer_has_a_type_through_a_tool(model: Model, client: Any) -> None:
    from pydantic_ai import Agent

    model.says(call("final_result", '{"name": "Paris", "people": 2}'))
    assert Agent(client, output_type=City).run_sync("Which city?").output == City(name="Paris", people=2)
    assert model.requests[-1].grammar is not None  # a call is required


def test_an_answer_has_a_type_through_a_schema(model: Model, client: Any) -> None:
    from pydantic_ai import Agent, NativeOutput

    model.says('{"name": "Paris", "people": 2}')
    agent = Agent(client, output_type=NativeOutput(City))
    assert agent.run_sync("Which city?").output == City(name="Paris", people=2)
    assert model.requests[-1].grammar is not None


def test_a_stream(model: Model, client: Any) -> None:
    import asyncio

    from pydantic_ai import Agent

    async def text() -> list[str]:
        async with Agent(client).run_stream("Hello") as result:
            return [part async for part in result.stream_text(delta=True, debounce_by=None)]

    model.says("Hello there, you.")
    parts = asyncio.run(text())
    assert "".join(parts) == "Hello there, you."
    assert len(parts) > 1
