"""Showing a file to the user, where there is a display."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path


def has_display() -> bool:
    """Whether a browser could show a window here. On Linux, a browser of a terminal does not count."""
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_file(path: Path) -> bool:
    """Open a file in the browser; False if there is no display, or no browser that starts."""
    if not has_display():
        return False
    try:
        return webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        return False
