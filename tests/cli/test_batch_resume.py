"""`batch` with a file of OpenAI's batch API that an earlier run has begun: what is kept or refused."""

from __future__ import annotations

import fcntl
import signal
from pathlib import Path

import pytest

from tiny_llm.cli.batch_file import job
from tiny_llm.cli.exit_codes import FAILED, REFUSED

from .batch_files import EXACT, SUM, contents, records, request, start, wait_for_lines, write_lines
from .conftest import Run
from .terminal import PATIENCE


def test_lines_with_an_error_are_tried_again_and_others_are_kept(run: Run, tmp_path: Path) -> None:
    file, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    flags = ("batch", "--input", str(file), "--output", str(output))
    write_lines(file, [SUM, request("a", max_tokens=9999), "{", request("b")])
    assert run(*flags).code == FAILED
    kept = {line for line in output.read_bytes().splitlines() if b'"status_code":200' in line}
    write_lines(file, [SUM, request("a"), request("b")])
    ended = run(*flags)
    assert (ended.code, ended.err.split(" in ")[0]) == (0, "2 answers kept, 1 answers")
    lines = output.read_bytes().splitlines()
    assert len(lines) == 3
    assert kept < set(lines)
    assert sorted(tmp_path.iterdir()) == [file, output]


def test_a_finished_file_needs_no_model(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, output = write_lines(tmp_path / "in.jsonl", [SUM]), tmp_path / "out.jsonl"
    flags = ("batch", "--input", str(file), "--output", str(output))
    assert run(*flags).code == 0
    before = output.read_bytes()
    monkeypatch.setattr(job, "start_engine", None)
    assert run(*flags).err.startswith("1 answers kept, 0 answers in ")
    assert output.read_bytes() == before


def test_a_run_that_was_killed_is_continued(run: Run, tmp_path: Path) -> None:
    lines = [*(request(f"{number} + 5") for number in range(300)), "{", request("7 + 5")]
    file = write_lines(tmp_path / "in.jsonl", lines)
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run("batch", "--input", str(file), "--output", str(whole), *EXACT).code == FAILED
    process = start("--input", str(file), "--output", str(output), *EXACT)
    wait_for_lines(output, 20, process)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    kept = output.read_bytes()
    assert 20 <= kept.count(b"\n") < 300
    output.write_bytes(kept + kept.splitlines()[0][:40])  # as if it had been writing
    ended = run("batch", "--input", str(file), "--output", str(output), *EXACT)
    assert f"{kept.count(10)} answers kept, " in ended.err
    assert output.read_bytes().startswith(kept[: kept.rindex(b"\n")])
    assert contents(output) == contents(whole)


def test_a_full_disk_ends_the_run_which_can_be_continued(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [request(f"{number} + 5") for number in range(40)])
    output = tmp_path / "out.jsonl"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))"
    process = start("--input", str(file), "--output", str(output), before=limit)
    _, err = process.communicate(timeout=PATIENCE)
    advice = "the answers before are complete; run the same command again to continue"
    assert process.returncode == FAILED
    assert (
        err.splitlines()[-1]
        == f"tiny-llm batch: --output: {output} cannot be written: File too large; {advice}"
    )
    assert output.stat().st_size == 4000
    ended = run("batch", "--input", str(file), "--output", str(output))
    assert ended.code == 0
    assert "answers kept" in ended.err
    assert sorted(record["custom_id"] for record in records(output)) == sorted(
        f"{number} + 5" for number in range(40)
    )


def test_a_device_that_is_full_is_named(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [SUM])
    ended = run("batch", "--input", str(file), "--output", "/dev/full")
    assert ended.code == FAILED
    assert "--output: /dev/full cannot be written: No space left on device; " in ended.err


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("content", [b"notes", b"notes\n", b"{}\n", b'{"line": 1, "text": "x"}\n', b"\xff\n"])
def test_a_file_of_something_else_is_not_continued(run: Run, tmp_path: Path, content: bytes) -> None:
    file, output = write_lines(tmp_path / "in.jsonl", [SUM]), tmp_path / "out.jsonl"
    output.write_bytes(content)
    ended = run("batch", "--input", str(file), "--output", str(output))
    assert ended.code == REFUSED
    assert f"--output: {output}: line 1: got no answer of a batch file" in ended.err
    assert output.read_bytes() == content


@pytest.mark.usefixtures("no_model")
def test_two_runs_do_not_write_one_file(run: Run, tmp_path: Path) -> None:
    file, output = write_lines(tmp_path / "in.jsonl", [SUM]), tmp_path / "out.jsonl"
    with output.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        ended = run("batch", "--input", str(file), "--output", str(output))
    assert (ended.code, ended.err) == (
        REFUSED,
        f"program: --output: {output} is being written by another run\n",
    )


@pytest.mark.parametrize("change", ["prompt", "model"])
def test_an_answer_to_another_request_is_not_kept(run: Run, tmp_path: Path, change: str) -> None:
    file, output = write_lines(tmp_path / "in.jsonl", [request("a"), request("b")]), tmp_path / "out"
    assert run("batch", "--input", str(file), "--output", str(output)).code == 0
    before, flags = output.read_bytes(), []
    if change == "prompt":
        write_lines(file, [request("a"), request("b", prompt="Another one")])
    else:
        flags = ["--model", "random:qwen2-0.5b"]
    ended = run("batch", "--input", str(file), "--output", str(output), *flags)
    assert ended.code == REFUSED
    assert "the output has the answer to another request or of another model" in ended.err
    assert output.read_bytes() == before


def test_a_continued_file_keeps_its_permissions(run: Run, tmp_path: Path) -> None:
    file, output = write_lines(tmp_path / "in.jsonl", [request("a"), "{"]), tmp_path / "out"
    assert run("batch", "--input", str(file), "--output", str(output)).code == FAILED
    output.chmod(0o600)
    write_lines(file, [request("a"), request("b")])
    assert run("batch", "--input", str(file), "--output", str(output)).code == 0
    assert output.stat().st_mode & 0o777 == 0o600
