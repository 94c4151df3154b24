"""`chat`: what a conversation remembers, and what does not end it."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from tiny_llm.cli import chat
from tiny_llm.cli.assembly import assemble
from tiny_llm.cli.progress import Progress

from .conftest import Run

SUM = "What is 7 + 5?"


def test_every_turn_is_told_again_with_the_whole_answer(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    options = parser.parse_args([])
    conversation = chat.Conversation(assemble(options, Progress()), options)
    conversation.ask(SUM, can_stop=False)
    said = capsys.readouterr().out.strip()
    assert "12" in said
    prompt = conversation.write_prompt("And then?")
    places = [prompt.index(text) for text in (SUM, said, "And then?")]
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
    assert "/reset starts anew" in ended.err
