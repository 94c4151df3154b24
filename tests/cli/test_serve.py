"""`tiny-llm serve`: what its flags do, and what is refused before anything is loaded."""

from __future__ import annotations

import argparse
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli import arguments, serve
from tiny_llm.cli.exit_codes import Failure, Refusal
from tiny_llm.errors import ArgumentError
from tiny_llm.server import run


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve.add_arguments(parser)
    return parser.parse_args(flags)


def refuse_to_load(*_: Any) -> Any:
    raise AssertionError("nothing may be loaded")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("first\n\n  second  \n")
    return file


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(serve.KEY_VARIABLE, raising=False)


def test_keys_come_from_a_file_or_the_environment(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serve.read_settings(parse()).api_keys == ()
    assert serve.read_settings(parse("--api-key-file", str(key_file))).api_keys == ("first", "second")
    monkeypatch.setenv(serve.KEY_VARIABLE, "third")
    assert serve.read_settings(parse()).api_keys == ("third",)
    with pytest.raises(Refusal, match="cannot be combined"):
        serve.read_settings(parse("--api-key-file", str(key_file)))


@pytest.mark.parametrize("content", [b"", b"\n \n", b"two words\n", "schlüssel".encode(), b"a\x00b"])
def test_a_file_without_usable_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(Refusal, match=r"^--api-key-file: .+: expected"):
        serve.run_with(refuse_to_load, parse("--api-key-file", str(file)))


@pytest.mark.parametrize("key", ["", " ", "a b", "é"])
def test_an_unusable_key_in_the_environment_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(serve.KEY_VARIABLE, key)
    with pytest.raises(Refusal, match=f"^{serve.KEY_VARIABLE}: expected"):
        serve.run_with(refuse_to_load, parse())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--api-key-file", "/nowhere/keys"], "--api-key-file: /nowhere/keys: No such file or directory"),
        (["--draft-tokens", "3"], "--draft-tokens: has no effect without --draft-model"),
        (
            ["--draft-model", "tiny", "--model", "tiny", "--model", "other"],
            "--draft-model: drafts for one --model only",
        ),
        (["--open-metrics"], "--open-metrics: has no effect without a key"),
        (["--model", "tiny", "--model", "tiny"], "--model: tiny is given twice"),
        (["--host", "no such host"], "--host: got no such host, expected an address of this machine"),
    ],
)
def test_what_is_refused_before_anything_is_loaded(flags: list[str], sentence: str) -> None:
    with pytest.raises(Refusal, match=f"^{sentence}"):
        serve.run_with(refuse_to_load, parse(*flags))


def test_a_port_in_use_is_a_failure_before_anything_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        sentence = rf"^--port: cannot listen at 127\.0\.0\.1, port {number}: Address .*; 0 takes a free port$"
        with pytest.raises(Failure, match=sentence):
            serve.run_with(refuse_to_load, parse("--port", str(number)))


def test_the_address_of_a_server_that_is_loading_is_in_use() -> None:
    """Two servers that start at the same time: the second one ends before it loads anything."""
    with run.bind("127.0.0.1", 0) as taken:
        assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)  # else no restart for a minute
        number = taken.getsockname()[1]
        with pytest.raises(Failure, match=rf"^--port: cannot listen at 127\.0\.0\.1, port {number}: Address"):
            serve.run_with(refuse_to_load, parse("--port", str(number)))


def test_engines_that_were_started_are_closed_if_a_later_one_fails() -> None:
    closed = []

    class Engine(nullcontext):
        def __exit__(self, *_: object) -> None:
            closed.append(True)

    def make_engine(model: str, *_: Any) -> Any:
        if model == "second":
            raise Failure("second: does not fit")
        return Engine()

    with pytest.raises(Failure, match="does not fit"):
        serve.run_with(make_engine, parse("--port", "0", "--model", "first", "--model", "second"))
    assert closed == [True]


@pytest.mark.parametrize(
    "flags",
    [
        ["--port", "65536"], ["--port", "-1"], ["--port", "x"], ["--kv-memory", "0"], ["--kv-memory", "much"],
        ["--kv-memory", "-1G"], ["--max-context", "1"], ["--step-tokens", "0"], ["--max-running", "0"],
        ["--max-waiting", "0"], ["--drain-timeout", "nan"], ["--request-timeout", "0"],
        ["--log-format", "xml"], ["--allowed-origin", "app.example"], ["--allowed-origin", "https://app.example/"],
        ["--allowed-origin", "https://app.example, https://b.example"],
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused(flags: list[str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parse(*flags)


@pytest.mark.parametrize(
    ("text", "number"), [("1024", 1024), ("2K", 2048), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("1tb", 2**40)]
)
def test_sizes(text: str, number: int) -> None:
    assert arguments.size(text) == number


def test_options_reach_the_engines_and_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = [
        "--kv-memory", "1G", "--max-context", "512", "--step-tokens", "64", "--max-running", "4",
        "--max-waiting", "8", "--offline", "--host", "0.0.0.0", "--allowed-host", "llm.example",
        "--allowed-origin", "https://App.example", "--allowed-origin", "app://desktop",
        "--drain-timeout", "5", "--request-timeout", "90", "--batch-invariant",
    ]  # fmt: skip
    made = {}
    monkeypatch.setattr(serve, "LLM", lambda name, **options: made.update(name=name, **options))

    def note(llm: None, **sizes: int) -> None:
        made.update(sizes)
        raise ArgumentError("Engine", "kv_memory", "1 bytes", "more")

    monkeypatch.setattr(serve, "Engine", note)
    with pytest.raises(Refusal, match=r"^--kv-memory: got 1 bytes, expected more$"):
        serve.make_engine("tiny", parse(*flags), None)
    sizes = {"kv_memory": 2**30, "max_context": 512, "step_tokens": 64, "max_running": 4, "max_waiting": 8}
    sizes["batch_invariant"] = True
    assert made == {"name": "tiny", "offline": True, "progress": None, **sizes}
    settings = serve.read_settings(parse(*flags))
    assert {"localhost", "0.0.0.0", "llm.example"} <= set(settings.allowed_hosts)
    assert settings.allowed_origins == ("https://app.example", "app://desktop")
    assert (settings.drain_timeout, settings.request_timeout) == (5, 90)


def test_a_context_that_does_not_fit_into_the_memory_is_refused() -> None:
    flags = ["--kv-memory", "1M", "--max-context", "2000"]
    expected = r"^--max-context: got 2000, expected at most \d+, which is what fits .+--kv-memory"
    with pytest.raises(Refusal, match=expected):
        serve.run_with(serve.make_engine, parse("--port", "0", *flags))


def test_memory_for_less_than_a_page_is_refused() -> None:
    with pytest.raises(Refusal, match=r"^--kv-memory: got 1 bytes, expected at least one page"):
        serve.run_with(serve.make_engine, parse("--port", "0", "--kv-memory", "1"))


def test_a_folder_is_served_under_its_own_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert serve.model_names([str(folder), "tiny"]) == {"my-model": str(folder), "tiny": "tiny"}
