"""langchain-openai: answers, streams, batches, tools and structured output, on both interfaces of OpenAI."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients


class Weather(BaseModel):
    """The weather in a city."""

    city: str = Field(description="its name")


WEATHER = call("Weather", '{"city": "Paris"}')


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def chat(request: pytest.FixtureRequest, server: RunningServer) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        base_url=f"{server.url}/v1", api_key="unused", model="fake", max_retries=0, max_tokens=200,
        use_responses_api=request.param, stream_usage=True,
    )  # fmt: skip


def test_whole_streamed_and_in_a_batch(model: Model, chat: Any) -> None:
    model.says("Hello there.")
    whole = chat.invoke("Hello")
    assert whole.text == "Hello there."
    parts = list(chat.stream("Hello"))
    assert "".join(part.text for part in parts) == "Hello there."
    assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata) > 0
    assert [each.text for each in chat.batch(["Hello", "Again"])] == ["Hello there."] * 2


@pytest.mark.parametrize("strict", [None, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_reaches_the_model(
    model: Model, chat: Any, strict: bool | None, streamed: bool
) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    model.says(f"I look.\n{WEATHER}", "It is sunny.")
    bound = chat.bind_tools([Weather], strict=strict)
    question = HumanMessage("Weather in Paris?")
    if streamed:
        first, *rest = bound.stream([question])
        for part in rest:
            first += part
    else:
        first = bound.invoke([question])
    (asked,) = first.tool_calls
    assert (asked["name"], asked["args"]) == ("Weather", {"city": "Paris"})
    last = bound.invoke([question, first, ToolMessage("sunny", tool_call_id=asked["id"])])
    assert last.text == "It is sunny."
    assert model.prompt.index("I look.") < model.prompt.index("<|im_start|>tool\nsunny")


@pytest.mark.parametrize(
    ("method", "answer", "strict"),
    [
        ("json_schema", '{"city": "Paris"}', None),
        ("json_schema", '{"city": "Paris"}', True),
        ("json_mode", '{"city": "Paris"}', None),
        ("function_calling", WEATHER, None),
        ("function_calling", WEATHER, True),
    ],
)
def test_structured_output(model: Model, chat: Any, method: str, answer: str, strict: bool | None) -> None:
    model.says(answer)
    made = chat.with_structured_output(Weather, method=method, strict=strict)
    assert made.invoke("Weather in Paris? Answer in JSON.") == Weather(city="Paris")
    assert model.requests[-1].grammar is not None
