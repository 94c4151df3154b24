"""A written folder for each test to load or to damage, and a cache of the hub that is not the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from .folders import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small whole model: Qwen2 of one layer, 4 bits, tied."""
    return write_folder(tmp_path / "model")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing here may look into the cache of whoever runs the tests."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "hub"
