"""A model whose weights hold NaN: a sentence and exit code 1, where an empty answer was the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_llm.cli.endings import FAILED
from tiny_llm.cli.loaders import LOADERS

from ..support.checkpoints import broken_copy
from .conftest import Run


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        *(("generate", ["--loader", loader]) for loader in LOADERS),
        ("generate", ["--json"]),
        ("generate", ["--sampler-temp", "1", "--sampler-top-p", "0.9"]),
        ("generate", ["--draft-model", "tiny"]),
        ("generate", ["--solution", "mlx"]),
        ("batch", ["--json"]),
    ],
)
def test_an_answer_of_nan_is_an_error(run: Run, tmp_path: Path, command: str, flags: list[str]) -> None:
    ended = run(command, "--model", str(broken_copy(tmp_path / "broken")), *flags)
    assert (ended.code, ended.out.strip()) == (FAILED, "")
    assert ended.err.splitlines()[-1].startswith("program: the scores of the next token are NaN: ")
