"""litellm: answers, streams and tools through its adapters for OpenAI, Anthropic and Ollama."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients
USER = {"role": "user", "content": "Weather in Paris?"}
WEATHER = call("weather", '{"city": "Paris"}')
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
ADAPTERS = {"openai/fake": "/v1", "anthropic/fake": "", "ollama_chat/fake": ""}


@pytest.fixture(params=ADAPTERS)
def where(request: pytest.FixtureRequest, server: RunningServer) -> dict[str, Any]:
    base = f"{server.url}{ADAPTERS[request.param]}"
    return {"model": request.param, "api_base": base, "api_key": "unused", "max_tokens": 200}


def test_whole_and_streamed(model: Model, where: dict[str, Any]) -> None:
    import litellm

    model.says("Hello there.")
    whole = litellm.completion(messages=[USER], **where)
    assert whole.choices[0].message.content == "Hello there."
    parts = list(litellm.completion(messages=[USER], stream=True, **where))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "Hello there."
    assert whole.usage.prompt_tokens == len(model.requests[-1].prompt_ids)


def test_a_tool_is_called_and_its_result_reaches_the_model(model: Model, where: dict[str, Any]) -> None:
    import litellm

    model.says(f"I look.\n{WEATHER}", "It is sunny.")
    first = litellm.completion(messages=[USER], tools=[TOOL], **where).choices[0]
    (asked,) = first.message.tool_calls
    assert first.finish_reason == "tool_calls"
    assert (asked.function.name, json.loads(asked.function.arguments)) == ("weather", {"city": "Paris"})
    result = {"role": "tool", "tool_call_id": asked.id, "name": "weather", "content": "sunny"}
    said = litellm.completion(messages=[USER, first.message.model_dump(), result], tools=[TOOL], **where)
    assert said.choices[0].message.content == "It is sunny."
    assert "<|im_start|>tool\nsunny" in model.prompt


# The adapter for Anthropic asks for a call instead.
@pytest.mark.parametrize("where", ["openai/fake", "ollama_chat/fake"], indirect=True)
def test_a_format(model: Model, where: dict[str, Any]) -> None:
    import litellm

    model.says('{"city": "Paris"}')
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": PARAMETERS, "strict": True}}
    answer = litellm.completion(messages=[USER], response_format=form, **where)
    assert json.loads(answer.choices[0].message.content) == {"city": "Paris"}
    assert "city" in model.requests[-1].grammar.text


def test_a_completion(model: Model, server: RunningServer) -> None:
    import litellm

    model.says(" a time.")
    url = f"{server.url}/v1"
    said = litellm.text_completion(
        model="text-completion-openai/fake", prompt="Once upon", api_base=url, api_key="unused"
    )
    assert said.choices[0].text == " a time."
