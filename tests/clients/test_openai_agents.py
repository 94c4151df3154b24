"""openai-agents: functions, handoffs and typed answers, on both interfaces of OpenAI, whole and streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients
WEATHER = call("weather", '{"city": "Paris"}')


@pytest.fixture(params=["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def agents_model(request: pytest.FixtureRequest, server: RunningServer) -> Any:
    import agents
    import openai

    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    return getattr(agents, request.param)(model="fake", openai_client=client)


@pytest.fixture(params=["whole", "streamed"])
def run(request: pytest.FixtureRequest) -> Callable[[Any, str], Any]:
    """The result of an agent's run."""
    from agents import Runner

    async def whole(agent: Any, text: str) -> Any:
        return await Runner.run(agent, text)

    async def streamed(agent: Any, text: str) -> Any:
        result = Runner.run_streamed(agent, text)
        async for _ in result.stream_events():
            pass
        return result

    chosen = {"whole": whole, "streamed": streamed}[request.param]
    return lambda agent, text: asyncio.run(chosen(agent, text))


def test_a_function_is_called_and_its_result_reaches_the_model(
    model: Model, agents_model: Any, run: Callable[[Any, str], Any]
) -> None:
    from agents import Agent, function_tool

    cities = []

    @function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "sunny"

    agent = Agent(name="guide", instructions="Be brief.", model=agents_model, tools=[weather])
    model.says(f"I look.\n{WEATHER}", "It is sunny.")
    assert run(agent, "Weather in Paris?").final_output == "It is sunny."
    assert cities == ["Paris"]
    assert model.prompt.index("Be brief.") < model.prompt.index("Weather in Paris?")
    assert '"arguments": {"city": "Paris"}' in model.prompt
    assert model.prompt.index("I look.") < model.prompt.index("<|im_start|>tool\nsunny")


def test_an_agent_hands_over_to_another(
    model: Model, agents_model: Any, run: Callable[[Any, str], Any]
) -> None:
    from agents import Agent

    poet = Agent(name="Poet", instructions="Write verses.", model=agents_model)
    first = Agent(name="Reception", instructions="Hand over.", model=agents_model, handoffs=[poet])
    model.says(call("transfer_to_poet", "{}"), "A verse.")
    result = run(first, "A poem, please")
    assert (result.final_output, result.last_agent.name) == ("A verse.", "Poet")
    assert "Write verses." in model.prompt


def test_an_answer_has_a_type(model: Model, agents_model: Any, run: Callable[[Any, str], Any]) -> None:
    from agents import Agent
    from pydantic import BaseModel

    class City(BaseModel):
        name: str
        people: int

    agent = Agent(name="guide", model=agents_model, output_type=City)
    model.says('{"name": "Paris", "people": 2}')
    assert run(agent, "Which city?").final_output == City(name="Paris", people=2)
    assert model.requests[-1].grammar is not None
