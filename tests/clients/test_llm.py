"""llm: the command, with the settings of docs/serving.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..support.serving.running import RunningServer
from .conftest import Model, call

pytestmark = pytest.mark.clients
FUNCTION = """
def weather(city: str) -> str:
    "The weather in a city."
    return f"sunny in {city}"
"""


@pytest.fixture
def llm(tmp_path: Path, server: RunningServer) -> Callable[..., str]:
    """What the command prints, in this process: to import it takes seconds."""
    settings = (
        "- model_id: ours\n  model_name: fake\n  supports_tools: true\n  supports_schema: true\n"
        f"  api_base: {server.url}/v1\n"
    )
    (tmp_path / "extra-openai-models.yaml").write_text(settings)

    def run(*arguments: str) -> str:
        from click.testing import CliRunner
        from llm.cli import cli

        done = CliRunner().invoke(cli, ["-m", "ours", *arguments], env={"LLM_USER_PATH": str(tmp_path)})
        assert done.exit_code == 0, done.output
        return str(done.stdout).strip()

    return run


def test_streamed_and_whole(model: Model, llm: Callable[..., str]) -> None:
    model.says("Hello there.")
    assert llm("Hello", "-s", "Be brief.") == "Hello there."
    assert model.prompt.index("Be brief.") < model.prompt.index("Hello")
    assert llm("Hello", "--no-stream", "-o", "temperature", "0", "-o", "max_tokens", "2") != ""
    assert (model.requests[-1].sampling.temp, model.requests[-1].sampling.max_tokens) == (0, 2)


def test_a_schema_and_a_function(model: Model, llm: Callable[..., str]) -> None:
    model.says('{"name": "Paris", "people": 2}', call("weather", '{"city": "Paris"}'), "It is sunny.")
    assert json.loads(llm("Which city?", "--schema", "name, people int")) == {"name": "Paris", "people": 2}
    assert model.requests[-1].grammar is not None
    assert llm("Weather?", "--functions", FUNCTION).endswith("It is sunny.")
    assert "<|im_start|>tool\nsunny in Paris" in model.prompt
