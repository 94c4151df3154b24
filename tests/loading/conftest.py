"""Fixtures: a model folder to load or to damage, a hub with one model, and an empty cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from .folders import write_folder
from .hub_server import Hub, serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small whole model: Qwen2 of one layer, 4 bits, tied."""
    return write_folder(tmp_path / "model")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests must not use the cache of the user."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "hub"


EXTRA = {
    "README.md": b"# Small",
    "code.py": b"print()",
    "pytorch_model.bin": b"pickle",
    "sub/model.safetensors": b"",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one small model, which `HF_ENDPOINT` names."""
    folder = write_folder(tmp_path / "published")
    hub = Hub({path.name: path.read_bytes() for path in folder.iterdir()} | EXTRA)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # read when it was imported
    monkeypatch.setenv("NO_PROXY", "*")
    with serving(hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield hub
