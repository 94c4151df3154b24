"""The process for untrusted work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiny_llm.runtime.worker_process import ENVIRONMENT, WorkerProcess

HANDLER = """
import os
MEMORY = 2**31
TOO_MUCH_MEMORY = None
def handle():
    return dict(os.environ)
"""


def test_it_inherits_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINY_LLM_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "ANY_OTHER"):
        monkeypatch.setenv(name, "a secret")
    handler = tmp_path / "handler.py"
    handler.write_text(HANDLER)
    process = WorkerProcess(handler)
    try:
        inherited = process.request("{}", 20.0)
    finally:
        process.stop()
    assert "a secret" not in inherited.values()
    assert set(inherited) <= {*ENVIRONMENT, "__CF_USER_TEXT_ENCODING"}  # macOS sets the last one
    assert inherited["PATH"] == os.environ["PATH"]
