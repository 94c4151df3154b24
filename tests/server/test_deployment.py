"""What the docs of serving have for users fits the server: recipes, dashboard, unit and image."""

from __future__ import annotations

import argparse
import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tiny_llm.cli import serve

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running

FOLDER = Path(__file__).parents[2] / "docs" / "serving"
METRIC = re.compile(r"\btiny_llm_\w+")


def options_of(command: list[str]) -> argparse.Namespace:
    """The options of `tiny-llm serve`, as the program reads them."""
    program, name, *flags = command
    assert (Path(program).name, name) == ("tiny-llm", "serve")
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve.add_arguments(parser)
    return parser.parse_args(flags)


RECIPES = re.findall(r"```py\n(.*?)```", (FOLDER.parent / "serving.md").read_text(), re.S)


@pytest.mark.parametrize("code", RECIPES, ids=lambda code: code.split()[1])
def test_a_recipe_for_a_client_prints_an_answer(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    with running({"tiny": FakeEngine(script="It is exact.")}) as server:
        exec(code.replace("http://127.0.0.1:8000", server.url), {})
    assert capsys.readouterr().out.strip() == "It is exact."


def test_the_dashboard_asks_for_metrics_that_the_server_has(server: RunningServer) -> None:
    assert server.chat().status == 200
    families = text_string_to_metric_families(server.get("/metrics").body.decode())
    samples = {sample.name for family in families for sample in family.samples}
    dashboard: Any = json.loads((FOLDER / "grafana.json").read_text())
    panels = dashboard["panels"]
    for panel in panels:
        asked = {name for target in panel["targets"] for name in METRIC.findall(target["expr"])}
        assert asked, panel["title"]
        assert asked <= samples, panel["title"]
    queries = [variable["query"] for variable in dashboard["templating"]["list"]]
    assert set(METRIC.findall(" ".join(queries))) <= samples
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((FOLDER / "tiny-llm.service").read_text())
    return parser


def test_the_unit_starts_a_server_that_can_drain(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    options = options_of(shlex.split(service["ExecStart"]))
    assert float(service["TimeoutStopSec"]) > options.drain_timeout
    assert service["RestartPreventExitStatus"] == "2"
    credential = service["LoadCredential"].partition(":")[0]
    assert str(options.api_key_file) == f"%d/{credential}"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_image_starts_a_server_that_other_machines_can_reach() -> None:
    """Each line is an instruction; the last stage has no compiler and does not run as root."""
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    instructions = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    names = [name for name, _ in instructions]
    known = {"FROM", "RUN", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD", "HEALTHCHECK"}
    assert set(names) <= known
    last = dict(instructions[len(names) - names[::-1].index("FROM") :])
    assert last["USER"] != "root"
    assert "g++" not in json.dumps(last)
    options = options_of([*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])])
    assert (options.host, str(options.port)) == ("0.0.0.0", last["EXPOSE"])
    assert f":{options.port}/ready" in last["HEALTHCHECK"]
