"""`chat`: what a conversation remembers, and errors that do not end it."""

from __future__ import annotations

import argparse
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli import chat
from tiny_llm.cli.build_backend import build_backend
from tiny_llm.cli.loaders import LOADERS
from tiny_llm.cli.progress import ProgressBar

from .conftest import Run

FULL = next(iter(LOADERS))
SUM = "What is 7 + 5?"


def test_the_prompt_has_every_turn_with_its_complete_answer(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    options = parser.parse_args([])
    talk = chat.Chat(build_backend(options, ProgressBar()), options)
    talk.answer(SUM, can_stop=False)
    answer = capsys.readouterr().out.strip()
    assert "12" in answer
    prompt = talk.conversation.prompt_for("And then?").text
    places = [prompt.index(text) for text in (SUM, answer, "And then?")]
    assert places == sorted(places)


def test_a_template_that_fails_on_a_turn_does_not_end_the_conversation(
    run: Run, embedded_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = embedded_copy / "tokenizer_config.json"
    content = json.loads(settings.read_text())
    check = "{% if messages | length > 3 %}{{ raise_exception('one turn only') }}{% endif %}"
    content["chat_template"] = check + content["chat_template"]
    settings.write_text(json.dumps(content))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SUM}\nAnd then?\n/reset\n{SUM}\n"))
    ended = run("chat", "--model", str(embedded_copy))
    assert ended.code == 0
    first, second = ended.out.splitlines()
    assert "12" in first
    assert second == first
    assert "one turn only" in ended.err
    assert "/reset starts a new conversation" in ended.err


def converse(run: Run, monkeypatch: pytest.MonkeyPatch, lines: list[str], *flags: str) -> list[dict]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    ended = run("chat", "--json", *flags)
    assert ended.code == 0, ended.err
    assert "tok/s" not in ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_json_is_an_object_for_each_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [SUM, "", "/sing", "/help", "word " * 3000, "/reset", SUM]
    first, command, described, long, reset, again = converse(run, monkeypatch, lines)
    assert first["prompt"] == SUM
    assert "12" in first["text"]
    assert (first["cached_tokens"], first["dropped_turns"], first["finish_reason"]) == (0, 0, "stop")
    assert command == {"prompt": "/sing", "error": "/sing: no such command; /help lists the commands"}
    assert described == {"command": "/help", "text": chat.HELP}
    assert reset == {"command": "/reset"}
    assert "expected fewer than the context of 2048" in long["error"]
    assert again["text"] == first["text"]


@pytest.mark.parametrize("flags", [[], ["--draft-model", "tiny"], ["--no-enable-flash-attn"]])
def test_a_turn_processes_only_new_tokens(
    run: Run, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    turns = converse(run, monkeypatch, [SUM, "And 8 + 9?", "Thank you."], *flags, "--max-tokens", "20")
    for before, after in pairwise(turns):
        # The rendered answer may have other tokens than the generated one; all earlier tokens are cached.
        processed = before["prompt_tokens"] + before["generated_tokens"]
        assert before["prompt_tokens"] <= after["cached_tokens"] <= processed
        assert 0 < after["prompt_tokens"] - after["cached_tokens"] < before["prompt_tokens"]


@pytest.mark.parametrize("flags", [*(["--loader", name] for name in LOADERS), ["--solution", "mlx"]])
def test_without_a_prompt_cache_the_answers_are_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    lines, exact = [SUM, "And 8 + 9?"], ("--max-tokens", "12", "--dtype", "float32")
    turns = converse(run, monkeypatch, lines, *exact, *flags)
    assert [turn["cached_tokens"] for turn in turns] == [0, 0]
    assert [turn["text"] for turn in turns] == [
        turn["text"] for turn in converse(run, monkeypatch, lines, *exact)
    ]


def test_a_template_that_changes_earlier_turns_is_processed_from_there(
    run: Run, embedded_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = embedded_copy / "tokenizer_config.json"
    content = json.loads(settings.read_text())
    content["chat_template"] = "{{ messages | length }} messages. " + content["chat_template"]
    settings.write_text(json.dumps(content))
    lines, flags = (
        [SUM, "And 8 + 9?"],
        ("--max-tokens", "12", "--dtype", "float32", "--model", str(embedded_copy)),
    )
    first, second = converse(run, monkeypatch, lines, *flags)
    assert second["cached_tokens"] < 5 < first["prompt_tokens"]


def test_a_full_context_drops_the_oldest_turns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"Turn {turn}: {'word ' * 250}" for turn in range(14)]
    turns = converse(run, monkeypatch, lines, "--max-tokens", "10")
    assert all("error" not in turn for turn in turns)
    dropped = [turn["dropped_turns"] for turn in turns]
    assert dropped[0] == 0
    assert sum(dropped) > 0
    # Half of the context is freed at once; dropping one turn each time would invalidate the cache each time.
    assert sum(count > 0 for count in dropped) < len(turns) / 2
    for before, after in pairwise(turns):
        if after["dropped_turns"]:
            assert after["prompt_tokens"] <= 1024
        else:
            assert after["cached_tokens"] >= before["prompt_tokens"]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    ended = run("chat", "--max-tokens", "10")
    assert ended.code == 0
    assert ended.err.count("turns: the context of 2048 tokens was full") == sum(n > 1 for n in dropped)


def test_a_question_that_leaves_no_room_for_the_answer_drops_no_turn(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{SUM} {'word ' * 250}", "word " * 900, "And?"]
    before, error, after = converse(run, monkeypatch, lines, "--max-tokens", "1200")
    assert error["error"].startswith("--max-tokens: got 1200, expected at most 1")
    assert after["dropped_turns"] == 0
    assert after["prompt_tokens"] > before["prompt_tokens"]


def test_a_question_that_is_too_long_drops_no_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before, error, after = converse(run, monkeypatch, [SUM, "word " * 3000, "And?"], "--max-tokens", "10")
    assert error["error"].startswith("the conversation: got 3")
    assert after["dropped_turns"] == 0
    assert after["prompt_tokens"] > before["prompt_tokens"]


def test_a_line_of_json_may_hold_any_prompt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ["{no JSON}", '{"prompt": " "}', '{"prompt": 7}', '{"prompt": "x", "id": 1}', "{}"]
    prompts = ["/help", "Two lines:\nWhat is 7 + 5?", "/exit", "{no JSON}"]
    lines = [*(json.dumps({"prompt": text}) for text in prompts), *bad, SUM]
    found = converse(run, monkeypatch, lines, "--max-tokens", "5")
    assert [turn["prompt"] for turn in found] == [*prompts, *bad, SUM]
    assert ["text" in turn for turn in found] == [True] * 4 + [False] * 5 + [True]
    assert [turn["error"] for turn in found[4:9]] == [
        'got invalid JSON, expected {"prompt": TEXT}',
        "prompt: got an empty text, expected at least one word",
        "prompt: got a number, expected a string",
        "got the fields prompt, id, expected prompt alone",
        "got the fields none, expected prompt alone",
    ]


def test_an_empty_answer_is_a_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [SUM, "And then?"]
    first, second = converse(run, monkeypatch, lines, "--stop", "7", "--max-tokens", "5")
    alone, _ = converse(run, monkeypatch, lines[::-1], "--stop", "7", "--max-tokens", "5")
    assert first["text"] == ""
    assert second["prompt_tokens"] > alone["prompt_tokens"]


def test_an_answer_that_is_stopped_reports_dropped_turns(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    options = parser.parse_args(["--max-tokens", "600"])
    backend = build_backend(options, ProgressBar())
    answer = backend.generate

    def interrupted(*arguments: Any) -> Any:
        return Interrupted(answer(*arguments))

    talk = chat.Chat(backend, options)
    for turn in range(6):
        talk.conversation.add_turn(f"Turn {turn}", "word " * 250)
    backend.generate = interrupted
    talk.answer("Tell me a short story about a brave fox.", can_stop=True)
    ended = capsys.readouterr()
    assert "(stopped)\ndropped the oldest 3 turns: the context of 2048 tokens was full\n" in ended.err
    assert ended.out.strip()
    assert talk.conversation.turns[-1][1] == ended.out
    assert talk.conversation.dropped_turns == 3


class Interrupted:
    """An answer that Ctrl-C interrupts at its third piece."""

    def __init__(self, generation: Any):
        self._generation = generation
        self._left = 2

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> str:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return next(self._generation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generation, name)
