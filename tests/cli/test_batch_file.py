"""`batch` with a file of OpenAI's batch API: answers of the server, errors by line, interrupted runs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli.batch_file import application
from tiny_llm.cli.exit_codes import FAILED, REFUSED
from tiny_llm.cli.loaders import DEFAULT_LOADER

from .batch_files import CHAT, SUM, records, request, start, write_lines
from .conftest import Run
from .terminal import PATIENCE


def test_each_request_gets_the_response_of_the_server(run: Run, tmp_path: Path) -> None:
    text = request("text", prompt="Once upon a time", logprobs=1)
    response = request("response", "/v1/responses", input="Hello", max_output_tokens=4)
    file = write_lines(tmp_path / "in.jsonl", [SUM, "", text, response])
    ended = run("batch", "--input", str(file), "--output", str(tmp_path / "out"), "--json")
    assert ended.record["answers"] == 3
    found = {record.pop("custom_id"): record for record in records(tmp_path / "out")}
    numbers = [found[name]["id"].split("_")[2] for name in ("sum", "text", "response")]
    assert numbers == ["1", "3", "4"]
    for record in found.values():
        assert record["error"] is None
        assert record["response"]["status_code"] == 200
        assert record["response"]["request_id"].startswith("req_")
    bodies = {name: record["response"]["body"] for name, record in found.items()}
    generated = run("generate", "--json", "--prompt", "What is 7 + 5?", "--system", "").record["text"]
    assert bodies["sum"]["choices"][0]["message"]["content"] == generated
    assert bodies["sum"]["object"] == "chat.completion"
    assert bodies["text"]["usage"]["completion_tokens"] == len(
        bodies["text"]["choices"][0]["logprobs"]["tokens"]
    )
    assert bodies["response"]["object"] == "response"


COMPLETED = '{"custom_id": "ID", "method": "POST", "url": "/v1/completions", "body": BODY}'
# Lines that are no request, with the custom_id and the text of their error.
BROKEN = {
    "{": (None, "got invalid JSON, expected an object: "),
    "\udcff": (None, "got invalid JSON"),
    "[" * 100000: (None, "got invalid JSON"),
    "[1]": (None, "got invalid JSON, expected an object: Expected `object`, got `array`"),
    json.dumps({"custom_id": "x" * 2**24}): (None, "got more than 8454144 bytes, expected at most that many"),
    "{}": (None, "custom_id: got nothing, expected a string"),
    '{"custom_id": 7}': (None, "custom_id: got a number, expected a string"),
    '{"custom_id": ""}': (None, 'custom_id: got "", expected a string'),
    '{"custom_id": "a"}': ("a", "method: got nothing, expected POST"),
    '{"custom_id": "b", "method": "GET"}': ("b", 'method: got "GET", expected POST'),
    '{"custom_id": "c", "method": "POST"}': ("c", "url: got nothing, expected /v1/chat/completions, "),
    request("d", "/v1/embeddings"): ("d", 'url: got "/v1/embeddings", expected /v1/chat/completions, '),
    '{"custom_id": "e", "method": "POST", "url": "/v1/completions"}': ("e", "body: got nothing, expected an"),
    COMPLETED.replace("ID", "g1").replace("BODY", "1e999"): (
        "g1",
        "body: got invalid JSON, expected an object: ",
    ),
    COMPLETED.replace("ID", "g2").replace("BODY", '"\udcff"'): ("g2", "body: got invalid JSON"),
    COMPLETED.replace("ID", "g3").replace("BODY", '{"stream": 1e999}'): ("g3", "body: got invalid JSON"),
    COMPLETED.replace("ID", "g4").replace("BODY", '{"stream": ' + "9" * 5000 + "}"): (
        "g4",
        "body: got invalid JSON",
    ),
    '{"custom_id": "f", "method": "POST", "url": "/v1/completions", "body": []}': ("f", "body: got a list"),
    request("g", stream=True): ("g", "body: stream: got true, expected false"),
    request("sum"): ("sum", "custom_id: a line before has the same one"),
}
# Requests that the server refuses, with the status and the code of its answer.
REFUSALS = {
    request("long", prompt="word " * 3000): (400, "context_length_exceeded"),
    request("model", model="other"): (404, "model_not_found"),
    request("range", temperature=7): (400, "invalid_value"),
    request("field", best_of=3): (400, "unsupported_value"),
    request("no prompt", CHAT): (400, "invalid_value"),
}


def test_a_wrong_line_has_an_error_and_the_others_are_answered(run: Run, tmp_path: Path) -> None:
    lines = [SUM, *BROKEN, *REFUSALS, request("last")]
    file, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    file.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    ended = run("batch", "--input", str(file), "--output", str(output))
    assert ended.code == FAILED
    wrong = len(BROKEN) + len(REFUSALS)
    assert f"2 answers, {wrong} errors in " in ended.err
    assert ended.err.splitlines()[-1].startswith(
        f"program: {wrong} lines have an error, which {output} says; "
    )
    found = {int(record["id"].split("_")[2]): record for record in records(output)}
    assert sorted(found) == list(range(1, len(lines) + 1))
    for number, (custom_id, problem) in enumerate(BROKEN.values(), start=2):
        record = found[number]
        assert (record["custom_id"], record["response"], record["error"]["code"]) == (
            custom_id,
            None,
            "invalid_line",
        )
        assert record["error"]["message"].startswith(problem)
    for number, (status, code) in enumerate(REFUSALS.values(), start=2 + len(BROKEN)):
        response = found[number]["response"]
        assert (response["status_code"], response["body"]["error"]["code"]) == (status, code)
        assert found[number]["error"] is None
    assert [found[number]["response"]["status_code"] for number in (1, len(lines))] == [200, 200]


# The most memory that the process has had; getrusage would count that of the parent, too.
PRINT_PEAK = """
import atexit, re
atexit.register(lambda: print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    peaks = []
    for number in (2, 100):
        lines = (request(f"{i} + 5", user="x" * 2**20) for i in range(number))
        file = write_lines(tmp_path / f"{number}.jsonl", lines)
        flags = ("--input", str(file), "--output", str(tmp_path / f"out-{number}"), "--batch-size", "1")
        process = start(*flags, before=PRINT_PEAK)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        peaks.append(int(out))
    assert peaks[1] - peaks[0] < 30 * 2**10  # KB; the file has 100 MB


class Responses:
    """In the place of the server's: counts the requests that it has at a time."""

    def __init__(self) -> None:
        self.running = self.most = self.busy = 0

    async def __call__(self, application: object, line: Any) -> dict[str, Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        is_busy = self.busy > 0 and self.running > 1
        self.busy -= is_busy
        await asyncio.sleep(0.001)
        self.running -= 1
        return {"status_code": 503 if is_busy else 200, "request_id": "req_1", "body": {}}


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> Responses:
    found = Responses()
    monkeypatch.setattr(application.Application, "_request", lambda *arguments: found(*arguments))
    monkeypatch.setattr(application, "PAUSE", 0.002)
    return found


def test_an_engine_has_twice_as_many_lines_as_run_at_a_time(
    run: Run, tmp_path: Path, responses: Responses
) -> None:
    file = write_lines(tmp_path / "in.jsonl", map(request, map(str, range(40))))
    ended = run("batch", "--input", str(file), "--output", str(tmp_path / "out"), "--batch-size", "3")
    assert (ended.code, responses.most) == (0, 6)


def test_a_line_waits_while_others_take_its_memory(run: Run, tmp_path: Path, responses: Responses) -> None:
    responses.busy = 30
    file = write_lines(tmp_path / "in.jsonl", map(request, map(str, range(20))))
    assert run("batch", "--input", str(file), "--output", str(tmp_path / "out")).code == 0
    assert responses.busy == 0


def test_after_a_fault_of_the_engine_no_line_has_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application.Engine, "failed", True)
    file, output = write_lines(tmp_path / "in.jsonl", map(request, "abc")), tmp_path / "out.jsonl"
    ended = run("batch", "--input", str(file), "--output", str(output))
    assert (ended.code, ended.err.splitlines()[-1]) == (FAILED, "program: the engine stopped after a fault")
    assert output.read_bytes() == b""


def test_progress_is_that_of_the_file(
    run: Run, tmp_path: Path, reports: list[tuple[str, int]], responses: Responses
) -> None:
    file = write_lines(tmp_path / "in.jsonl", map(request, map(str, range(5))))
    run("batch", "--input", str(file), "--output", str(tmp_path / "out"))
    done = [amount for task, amount in reports if task == "answering"]
    assert done == sorted(done)
    assert done[-1] == file.stat().st_size


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--raw"], "--raw: has no effect on a file of requests"),
        (["--system", "Be brief."], "--system: has no effect on a file of requests"),
        (["--enable-thinking"], "--enable-thinking: has no effect on a file of requests"),
        (["--loader", DEFAULT_LOADER], "--loader: has no effect on a file of requests"),
        (["--ray-engines", "2"], "--ray-engines: needs --ray"),
        (["--ray", "--threads", "2"], "--threads: has no effect with --ray"),
    ],
)
def test_options_without_effect_are_refused(
    run: Run, tmp_path: Path, flags: list[str], sentence: str
) -> None:
    file = write_lines(tmp_path / "in.jsonl", [SUM])
    ended = run("batch", "--input", str(file), "--output", str(tmp_path / "out"), *flags)
    assert ended.code == REFUSED
    assert ended.err.startswith(f"program: {sentence}")


@pytest.mark.usefixtures("no_model")
def test_a_file_of_requests_needs_an_output_and_only_it_takes_a_cluster(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", ["{broken", SUM])
    assert "--output: needed for a file of requests" in run("batch", "--input", str(file)).err
    questions = write_lines(tmp_path / "questions.jsonl", ['{"prompt": "x"}', SUM])
    ended = run("batch", "--input", str(questions), "--ray")
    assert (ended.code, "--ray: needs an --input of requests" in ended.err) == (REFUSED, True)
    text = write_lines(tmp_path / "questions.txt", [SUM])
    with pytest.raises(AssertionError, match="a model was loaded"):  # for a line of text
        run("batch", "--input", str(text))


def test_a_length_beyond_the_context_is_refused(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [SUM])
    flags = ("--input", str(file), "--output", str(tmp_path / "out"))
    ended = run("batch", *flags, "--max-seq-len", "4000")
    assert (ended.code, ended.err.splitlines()[-1]) == (
        REFUSED,
        "program: --max-seq-len: got 4000, expected at most the model's 2048",
    )


@pytest.mark.parametrize(
    ("package", "extra", "flags"), [("msgspec", "serve", ()), ("pyarrow", "ray", ("--ray",))]
)
def test_a_missing_package_is_named_with_its_extra(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    extra: str,
    flags: tuple[str, ...],
) -> None:
    file = write_lines(tmp_path / "in.jsonl", [SUM])
    for module in [name for name in sys.modules if name.startswith("tiny_llm.cli.batch_file.")]:
        if not module.endswith(".cluster_options"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    ended = run("batch", "--input", str(file), "--output", str(tmp_path / "out"), *flags)
    expected = f"{package}: not installed; install it with pip install 'tiny-llm[{extra}]'"
    assert (ended.code, ended.err) == (FAILED, f"program: {expected}\n")
