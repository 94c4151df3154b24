"""Arguments of the application become replicas, and options of `tiny-llm serve`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tiny_llm.cli.exit_codes import Refusal
from tiny_llm.deploy.arguments import RayArguments, parse


def arguments(**given: object) -> RayArguments:
    return RayArguments.model_validate(given)


def test_texts_of_a_command_line_become_numbers():
    given = arguments(replicas="2", cpus="4", model="tiny", max_running="8", batch_invariant="true")
    assert (given.replicas, given.cpus) == (2, 4)
    options, names = parse(given.command_line)
    assert (options.max_running, options.batch_invariant, names) == (8, True, {"tiny": "tiny"})


def test_lists_and_switches_of_a_file():
    options, _ = parse(arguments(allowed_host=["a.example", "b.example"], open_metrics=False).command_line)
    assert (options.allowed_host, options.open_metrics) == (["a.example", "b.example"], False)


@pytest.mark.parametrize("name", ["host", "port", "threads"])
def test_what_ray_decides_is_refused(name):
    with pytest.raises(Refusal, match=f"^{name}: is decided by"):
        _ = arguments(**{name: "1"}).command_line


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modle": "tiny"}, "--modle"),
        ({"max_running": "none"}, "--max-running"),
        ({"kv_memory": "x"}, "kv-memory"),
    ],
)
def test_a_wrong_option_is_named(given, said):
    with pytest.raises(Refusal, match=said):
        parse(arguments(**given).command_line)


@pytest.mark.parametrize("given", [{"replicas": 0}, {"cpus": "half"}, {"queue": 0}, {"load_factor": 1}])
def test_impossible_numbers_are_refused(given):
    with pytest.raises(ValidationError):
        arguments(**given)
