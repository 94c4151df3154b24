from __future__ import annotations

import pytest

from .host import gpu


@pytest.fixture(scope="session")
def metal_device() -> None:
    """The extension and its device, built before the first test that runs on them."""
    gpu.modules()
