"""Commands in this process: what they print, and the code they end with."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import pytest

from tiny_llm.cli import batch, run_command
from tiny_llm.cli.batch_file import application
from tiny_llm.cli.progress import ProgressBar
from tiny_llm.loading.find import EMBEDDED


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        """The JSON object that is all of the output."""
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command of `tiny-llm` with flags."""

    def call(command: str, *flags: str) -> Ended:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                code = run_command(command, "program", flags)
            except SystemExit as end:  # argparse
                code = int(str(end.code))
        return Ended(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture(autouse=True)
def keep_the_device() -> Iterator[None]:
    """Commands choose MLX's default device; later tests get the previous one back."""
    device = mx.default_device()
    yield
    mx.set_default_device(device)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every report of progress, as a task and how much of it is done."""
    seen: list[tuple[str, int]] = []
    take = ProgressBar.__call__

    def note(self: ProgressBar, task: str, done: int, total: int | None) -> None:
        seen.append((task, done))
        take(self, task, done, total)

    monkeypatch.setattr(ProgressBar, "__call__", note)
    return seen


@pytest.fixture
def embedded_copy(tmp_path: Path) -> Path:
    """The embedded model as a folder that a test may change."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "copy"))


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if `batch` loads a model."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(application, "build_tiny_llm_backend", refuse)
    monkeypatch.setattr(batch, "build_tiny_llm_backend", refuse)
