"""`visualize`: the page and the pictures of a real prompt, where they go, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli.exit_codes import FAILED, REFUSED
from tiny_llm_tools.cli import visualize
from tiny_llm_tools.profile import display

from .conftest import Run

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open, on a machine with a display."""
    found: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(display.webbrowser, "open", lambda uri: found.append(uri) or True)
    return found


def data_of(page: Path) -> Any:
    return json.loads(re.findall(r"<script[^>]*>(.*?)</script>", page.read_text("utf-8"), re.S)[0])


def test_the_page_has_the_prompt_that_the_model_reads(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ended = run("visualize", "--no-open", "--output", str(file), "--prompt", "Hello fox.", "--system", "")
    assert ended.code == 0, ended.err
    data = data_of(file)
    assert ended.out == f"{file}: {len(data['tokens'])} tokens, 8 layers of 4 heads\n"
    assert "".join(data["tokens"]) == data["facts"]["prompt"]
    assert "user\nHello fox." in data["facts"]["prompt"]
    assert data["facts"]["model"] == "tiny"
    assert list(tmp_path.iterdir()) == [file]


def test_raw_text_has_no_chat_template(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert run("visualize", "--raw", "--no-open", "--output", str(file), "--prompt", "Once upon").code == 0
    assert data_of(file)["tokens"] == ["Once", " upon"]


def test_by_default_the_page_is_opened_from_this_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / visualize.PAGE).write_text("an older page")
    ended = run("visualize", "--prompt", "Hi.", "--layer", "3", "--head", "2")
    assert (ended.code, ended.err) == (0, "")
    assert opened == [(tmp_path / visualize.PAGE).as_uri()]
    assert data_of(tmp_path / visualize.PAGE)["first"]["layer"] == 3
    assert data_of(tmp_path / visualize.PAGE)["first"]["head"] == 2


def test_no_open_opens_nothing(run: Run, tmp_path: Path, opened: list[str]) -> None:
    ended = run("visualize", "--no-open", "--prompt", "Hi.", "--output", str(tmp_path / "a.html"))
    assert (ended.code, ended.err, opened) == (0, "", [])


def test_without_a_display_the_file_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display.webbrowser, "open", lambda uri: pytest.fail("a browser was started"))
    file = tmp_path / "a.html"
    ended = run("visualize", "--prompt", "Hi.", "--output", str(file))
    assert ended.code == 0
    assert ended.err == f"program: there is no display here; open {file} in a browser\n"


def test_a_browser_that_does_not_start_is_no_failure(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    monkeypatch.setattr(display.webbrowser, "open", lambda uri: False)
    ended = run("visualize", "--prompt", "Hi.", "--output", str(tmp_path / "a.html"))
    assert ended.code == 0
    assert "no browser could be started; open" in ended.err


def test_pictures_go_into_a_new_folder(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    flags = ["--no-open", "--output", str(tmp_path / "a.html"), "--png", str(folder), "--layer", "1"]
    ended = run("visualize", "--prompt", "Price: $5 and $6.", *flags)
    assert ended.code == 0, ended.err
    names = ["weights", "head_entropy", "block_access_pattern", "online_softmax_state"]
    assert ended.out.splitlines()[1:] == [str(folder / f"{name}.png") for name in names]
    assert all((folder / f"{name}.png").read_bytes().startswith(PNG) for name in names)


def test_without_matplotlib_there_is_a_page_but_no_pictures(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = ["--no-open", "--prompt", "Hi.", "--output", str(tmp_path / "a.html")]
    ended = run("visualize", *page, "--png", str(tmp_path / "pictures"))
    assert (ended.code, ended.out, list(tmp_path.iterdir())) == (FAILED, "", [])
    assert ended.err == "program: --png: pictures need matplotlib: pip install 'tiny-llm[tools]'\n"
    assert run("visualize", *page).code == 0


def test_a_prompt_that_is_too_long_is_refused(run: Run, tmp_path: Path) -> None:
    ended = run("visualize", "--prompt", "word " * 700, "--output", str(tmp_path / "a.html"))
    assert (ended.code, ended.out, list(tmp_path.iterdir())) == (REFUSED, "", [])
    assert re.match(
        r"program: --prompt: got 7\d\d tokens, expected at most 512: the page has a cell", ended.err
    )


@pytest.mark.parametrize(("flag", "count"), [("--layer", 8), ("--head", 4)])
def test_a_layer_and_a_head_that_are_not_there_are_refused(
    run: Run, tmp_path: Path, flag: str, count: int
) -> None:
    ended = run("visualize", flag, str(count), "--output", str(tmp_path / "a.html"))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert f"{flag}: got {count}, expected at most {count - 1}: tiny has {count}" in ended.err


def test_a_page_that_cannot_be_written_is_refused_before_a_model_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visualize, "build_tiny_llm_backend", lambda *_: pytest.fail("a model was loaded"))
    ended = run("visualize", "--output", "/proc/a.html")
    assert ended.code == REFUSED
    assert "--output: /proc/a.html cannot be written" in ended.err


def test_progress_names_each_task(run: Run, tmp_path: Path, reports: list[tuple[str, int]]) -> None:
    run("visualize", "--no-open", "--prompt", "Hi.", "--output", str(tmp_path / "a.html"))
    assert [done for task, done in reports if task == "recording attention"] == list(range(8))
    assert [done for task, done in reports if task == "preparing the page"] == list(range(8))
