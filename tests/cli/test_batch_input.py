"""`batch --input`: valid lines, errors about invalid ones, and the answers that are written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli.exit_codes import INTERRUPTED, REFUSED
from tiny_llm.loading.tokenizer.chat_template import MAX_TEXT_CHARS

from ..support.processes.child import ROOT
from .conftest import Run
from .terminal import PATIENCE, environment

SUM, NAME = "What is 7 + 5?", "Who are you?"
SHORT = ("--max-seq-len", "60")


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_of_a_text_file_is_a_question(run: Run, tmp_path: Path) -> None:
    file, answers = tmp_path / "questions.txt", tmp_path / "answers.jsonl"
    file.write_bytes(f"\ufeff{SUM}\r\n\n  \n{{not JSON}} é 🦙\n{NAME}".encode())
    ended = run("batch", "--input", str(file), "--output", str(answers), *SHORT)
    assert (ended.code, ended.out) == (0, "")
    assert "3 prompts" in ended.err
    found = sorted(written(answers), key=lambda answer: answer["line"])
    assert [(answer["line"], answer["prompt"]) for answer in found] == [
        (1, SUM),
        (4, "{not JSON} é 🦙"),
        (5, NAME),
    ]
    alone = run("batch", "--json", "--input", str(file), *SHORT).record
    assert [answer["text"] for answer in alone["answers"]] == [answer["text"] for answer in found]
    assert "12" in found[0]["text"]
    shown = run("batch", "--input", str(file), *SHORT)
    assert f"[5] {NAME}\n{found[2]['text']}\n" in shown.out


def test_lines_of_json_may_have_messages_an_id_and_max_tokens(run: Run, tmp_path: Path) -> None:
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": SUM},
        {"role": "assistant", "content": "12"},
        {"role": "user", "content": "Tell me a short story about a brave fox."},
    ]
    lines = [
        {"prompt": SUM, "id": "sum"},
        {"messages": conversation, "max_tokens": 4, "id": 7},
        {"prompt": NAME},
    ]
    file, answers = tmp_path / "questions", tmp_path / "answers.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    record = run("batch", "--json", "--input", str(file), "--output", str(answers)).record
    assert "answers" not in record
    assert record["prompts"] == 3
    first, second, third = sorted(written(answers), key=lambda answer: answer["line"])
    assert (first["id"], second["id"], "id" in third) == ("sum", 7, False)
    assert (second["generated_tokens"], second["finish_reason"]) == (4, "length")
    assert second["messages"] == conversation
    generated = run("generate", "--json", "--prompt", SUM).record
    for field in ("text", "prompt_tokens", "generated_tokens", "finish_reason"):
        assert first[field] == generated[field]


BAD = {
    "{": "got invalid JSON, expected an object",
    "[1]": "got a list, expected an object",
    '"x"': "got a string, expected an object",
    '{"prompt": "x", "top_p": 1}': 'got the field "top_p", expected prompt, messages, id, max_tokens',
    "{}": "expected either prompt or messages",
    '{"prompt": "x", "messages": []}': "expected either prompt or messages",
    '{"prompt": 1}': "prompt: got a number, expected a string",
    '{"prompt": " "}': "prompt: got an empty text",
    '{"prompt": "\\ud800"}': "prompt: got half a character",
    '{"prompt": "x", "id": 1.5}': "id: got a number, expected a string or an integer",
    '{"prompt": "x", "id": true}': "id: got true or false",
    '{"prompt": "x", "id": "\\ud800"}': "id: got half a character",
    '{"prompt": "x", "max_tokens": 0}': "max_tokens: got 0, expected an integer of at least 1",
    '{"prompt": "x", "max_tokens": "9"}': 'max_tokens: got "9"',
    '{"prompt": "x", "max_tokens": true}': "max_tokens: got true",
    '{"messages": "x"}': "messages: got a string, expected a list",
    '{"messages": []}': "messages: got a list, expected a list of at least one",
    '{"messages": ["x"]}': "messages[0]: expected an object with role and content",
    '{"messages": [{"role": "user"}]}': "messages[0]: expected an object with role and content",
    '{"messages": [{"role": "tool", "content": "x"}]}': 'messages[0]: role: got "tool", expected system',
    '{"messages": [{"role": "user", "content": null}]}': "messages[0]: content: got null, expected a string",
    "[" * 100000: "got invalid JSON",
    f'{{"prompt": "{"x" * MAX_TEXT_CHARS}"}}': f"expected at most {MAX_TEXT_CHARS}",
}


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("line", BAD, ids=[line[:40] for line in BAD])
def test_an_invalid_line_is_reported_before_a_model_is_loaded(run: Run, tmp_path: Path, line: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(f'{{"prompt": "{SUM}"}}\n\n{line}\n')
    ended = run("batch", "--input", str(file))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert ended.err.startswith(f"program: --input: {file}: line 3: ")
    assert BAD[line] in ended.err


@pytest.mark.usefixtures("no_model")
def test_invalid_lines_are_counted_and_invalid_bytes_concern_one_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_bytes(b"fine\n\xff\nfine\n\xfe\n\xfd\n\xfc\n\xfb\n")
    ended = run("batch", "--input", str(file))
    assert ended.code == REFUSED
    wrong = "; ".join(f"line {n}: got the byte 0x{byte}, expected text in UTF-8" for n, byte in
                      [(2, "ff"), (4, "fe"), (5, "fd")])  # fmt: skip
    assert ended.err == f"program: --input: {file}: {wrong} (and 2 more lines)\n"


@pytest.mark.usefixtures("no_model")
def test_a_file_without_questions_and_one_that_has_answers_are_refused(run: Run, tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full.jsonl"
    empty.write_text(" \n\n")
    full.write_text("{}\n")
    assert run("batch", "--input", str(empty)).err.startswith(f"program: --input: {empty}: got no questions")
    ended = run("batch", "--output", str(full))
    assert (ended.code, full.read_text()) == (REFUSED, "{}\n")
    assert ended.err.startswith(f"program: --output: {full} exists and is not empty")


@pytest.mark.usefixtures("no_model")
def test_messages_are_refused_with_raw(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "x"}]}')
    ended = run("batch", "--raw", "--input", str(file))
    assert ended.code == REFUSED
    assert "line 1: messages: --raw uses no chat template" in ended.err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"prompt": "word " * 3000}, "line 2: got 3021 tokens, expected fewer than the context of 2048"),
        ({"prompt": "word " * 600}, "line 2: got 621 tokens, expected fewer than --max-seq-len, 512"),
        ({"prompt": SUM, "max_tokens": 500}, "line 2: max_tokens: got 500, expected at most 48"),
        ({"prompt": "x" * (MAX_TEXT_CHARS - 5)}, f"expected at most {MAX_TEXT_CHARS}"),
    ],
)
def test_a_line_without_room_is_reported_before_any_answer(
    run: Run, tmp_path: Path, line: dict[str, Any], sentence: str
) -> None:
    file, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    file.write_text(f"{json.dumps({'prompt': SUM})}\n{json.dumps(line)}\n")
    ended = run("batch", "--input", str(file), "--output", str(answers))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert f"--input: {file}: line 2: " in ended.err
    assert sentence in ended.err
    assert not answers.exists()


def test_a_line_that_the_chat_template_refuses_is_reported(
    run: Run, embedded_copy: Path, tmp_path: Path
) -> None:
    settings = embedded_copy / "tokenizer_config.json"
    content = json.loads(settings.read_text())
    check = "{% if messages[-1].role != 'user' %}{{ raise_exception('the user must be last') }}{% endif %}"
    content["chat_template"] = check + content["chat_template"]
    settings.write_text(json.dumps(content))
    file = tmp_path / "questions.jsonl"
    conversation = [{"role": "user", "content": SUM}, {"role": "assistant", "content": "12"}]
    lines = [{"prompt": SUM}, {"messages": conversation}, {"messages": conversation}]
    file.write_text("\n".join(map(json.dumps, lines)))
    ended = run("batch", "--input", str(file), "--model", str(embedded_copy))
    assert (ended.code, ended.out) == (REFUSED, "")
    sentence = ended.err.splitlines()[-1]
    assert sentence.startswith(f"program: --input: {file}: line 2: ")
    assert sentence.count("the user must be last") == 1  # the first is enough: others may take as long as it


def test_a_raw_line_keeps_its_spaces(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    texts = ["  def f(x):  ", "\tOnce upon a time "]
    file.write_bytes(f"{texts[0]}\r\n   \n{texts[1]}\n".encode())
    flags = ("--json", "--input", str(file), *SHORT, "--dtype", "float32")
    raw = run("batch", "--raw", *flags).record["answers"]
    assert [answer["prompt"] for answer in raw] == texts
    alone = run("generate", "--json", "--raw", "--prompt", texts[0], "--dtype", "float32").record
    assert raw[0]["prompt_tokens"] == alone["prompt_tokens"]
    chat = run("batch", *flags).record["answers"]
    assert [answer["prompt"] for answer in chat] == [text.strip() for text in texts]


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tiny_llm", "batch", *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_standard_input_is_a_file_like_any_other() -> None:
    process = start("--input", "-", "--json", *SHORT)
    out, err = process.communicate(f'{{"prompt": "{SUM}"}}\n{NAME}\n'.encode(), timeout=PATIENCE)
    assert (process.returncode, out) == (REFUSED, b"")
    assert err == b"tiny-llm batch: --input: -: line 2: got invalid JSON, expected an object\n"
    process = start("--input", "-", "--json", *SHORT)
    out, _ = process.communicate(f"{SUM}\n{NAME}\n".encode(), timeout=PATIENCE)
    assert [answer["prompt"] for answer in json.loads(out)["answers"]] == [SUM, NAME]


def test_answers_that_are_complete_survive_an_interrupt_and_are_kept(run: Run, tmp_path: Path) -> None:
    file, answers = tmp_path / "questions.txt", tmp_path / "answers.jsonl"
    file.write_text(f"{SUM}\n" * 1000)
    process = start("--input", str(file), "--output", str(answers))
    assert process.stderr is not None
    while not (answers.exists() and answers.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == INTERRUPTED
    assert err.splitlines()[-1] == b"tiny-llm batch: stopped"
    found = written(answers)
    assert 3 <= len(found) < 1000
    assert {answer["text"] for answer in found} == {found[0]["text"]}
    before = answers.read_bytes()
    file.write_text(f"{SUM}\n" * (max(answer["line"] for answer in found) + 3))
    ended = run("batch", "--input", str(file), "--output", str(answers), "--resume")
    assert f"{len(found)} answers kept, " in ended.err
    assert answers.read_bytes().startswith(before)
    found = written(answers)
    assert sorted(answer["line"] for answer in found) == list(range(1, len(found) + 1))
    assert {answer["text"] for answer in found} == {found[0]["text"]}


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{}", "line 1: got no answer of `batch`, expected one on each line"),
        (b"\xff", "line 1: got no answer of `batch`"),
        (b"[1]", "line 1: got no answer of `batch`"),
        (b'{"line": [1], "text": "x"}', "line 1: got no answer of `batch`"),
        (b'{"line": 2, "prompt": "a", "text": "x"}', "line 1: got an answer to another question"),
        (b'{"line": 1, "id": 4, "prompt": "a", "text": "x"}', "line 1: got an answer to another question"),
        (b'{"line": 3, "prompt": "c", "text": "x"}', "line 1: got an answer to another question"),
    ],
)
def test_a_file_with_other_answers_is_not_resumed(
    run: Run, tmp_path: Path, line: bytes, sentence: str
) -> None:
    file, answers = tmp_path / "questions.txt", tmp_path / "answers.jsonl"
    file.write_text("a\nb\n")
    answers.write_bytes(line + b"\n")
    ended = run("batch", "--input", str(file), "--output", str(answers), "--resume")
    assert (ended.code, ended.out) == (REFUSED, "")
    assert ended.err.startswith(f"program: --resume: {answers}: {sentence}")
    assert answers.read_bytes() == line + b"\n"


def test_answers_of_another_conversation_are_not_resumed(run: Run, tmp_path: Path) -> None:
    """Or of another model: the prompt has another length."""
    file, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    file.write_text(
        json.dumps({"messages": [{"role": "user", "content": SUM}], "id": "x"})
        + "\n\n"
        + json.dumps({"prompt": NAME})
    )
    flags = ("batch", "--input", str(file), "--output", str(answers), *SHORT)
    assert run(*flags).code == 0
    before = answers.read_bytes()
    ended = run(*flags, "--resume", "--system", "Be brief.")
    assert ended.code == REFUSED
    assert "question 3: got a prompt of 23 tokens, expected 21" in ended.err
    assert answers.read_bytes() == before
    assert run(*flags, "--resume").code == 0
    assert answers.read_bytes() == before
