"""ollama: Ollama's own client, with everything that it asks of this server."""

from __future__ import annotations

from typing import Any

import pytest

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients
USER = {"role": "user", "content": "Weather in Paris?"}
WEATHER = call("weather", '{"city": "Paris"}')


def weather(city: str) -> str:
    """The weather.

    Args:
        city: its name
    """
    return f"sunny in {city}"


@pytest.fixture
def client(server: RunningServer) -> Any:
    import ollama

    return ollama.Client(host=server.url)


def test_chat(model: Model, client: Any) -> None:
    model.says("Hello there.")
    whole = client.chat("fake", [USER])
    assert (whole.message.content, whole.done, whole.done_reason) == ("Hello there.", True, "stop")
    parts = list(client.chat("fake:latest", [USER], stream=True))
    assert "".join(part.message.content for part in parts) == "Hello there."
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    last = parts[-1]
    assert (last.eval_count, last.prompt_eval_count) == (whole.eval_count, whole.prompt_eval_count)
    assert last.total_duration == last.prompt_eval_duration + last.eval_duration > 0


def test_generate(model: Model, client: Any) -> None:
    model.says("Hello there.")
    options = {"num_predict": 2, "temperature": 0.5, "seed": 7, "stop": ["x"], "num_ctx": 512}
    whole = client.generate("fake", "Hello", system="Be brief.", options=options)
    assert (whole.done_reason, whole.eval_count) == ("length", 2)
    assert model.prompt.index("Be brief.") < model.prompt.index("Hello")
    sampling = model.requests[-1].sampling
    assert (sampling.temp, sampling.seed, sampling.stop, sampling.top_k) == (0.5, 7, ("x",), 40)
    parts = list(client.generate("fake", "Hello", stream=True))
    assert "".join(part.response for part in parts) == "Hello there."


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_reaches_the_model(model: Model, client: Any, stream: bool) -> None:
    model.says(f"I look.\n{WEATHER}", "It is sunny.")
    answer = client.chat("fake", [USER], tools=[weather], stream=stream)
    parts = [part.message for part in (answer if stream else [answer])]
    calls = [each for part in parts for each in part.tool_calls or ()]
    first = {"role": "assistant", "content": "".join(part.content for part in parts), "tool_calls": calls}
    result = weather(**calls[0].function.arguments)
    last = {"role": "tool", "tool_name": "weather", "content": result}
    said = client.chat("fake", [USER, first, last], tools=[weather])
    assert said.message.content == "It is sunny."
    assert '"arguments": {"city": "Paris"}' in model.prompt
    assert model.prompt.index("I look.") < model.prompt.index("<|im_start|>tool\nsunny in Paris")


def test_a_format_and_thinking(model: Model, client: Any) -> None:
    from pydantic import BaseModel

    class City(BaseModel):
        name: str

    model.says('{"name": "Paris"}', '{"name": "Paris"}', "<think>\nHm.\n</think>\nYes.")
    answer = client.chat("fake", [USER], format=City.model_json_schema())
    assert City.model_validate_json(answer.message.content) == City(name="Paris")
    assert '"name"' in model.requests[-1].grammar.text
    client.generate("fake", "Which city?", format="json")
    assert model.requests[-1].grammar is not None
    thought = client.chat("fake", [USER], think=True)
    assert (thought.message.thinking, thought.message.content) == ("Hm.", "Yes.")


def test_models(model: Model, client: Any) -> None:
    (tag,) = client.list().models
    assert (tag.model, tag.size, tag.details.family) == ("fake", 1000, "fake")
    shown = client.show("fake")
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo["fake.context_length"] == model.context


def test_errors(model: Model, client: Any) -> None:
    import ollama

    with pytest.raises(ollama.ResponseError, match="no such model") as unknown:
        client.chat("other", [USER])
    assert unknown.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="images: expected none"):
        client.chat("fake", [{**USER, "images": [b"a picture"]}])
    model.failure = ValueError("an internal detail")
    with pytest.raises(ollama.ResponseError, match="the server failed to answer"):
        list(client.chat("fake", [USER], stream=True))
