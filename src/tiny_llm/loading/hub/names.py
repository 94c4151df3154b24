"""What a name of a model means: the one that ships, a random one, a folder, or one of the hub."""

import os
import re
from pathlib import Path

from ...models.names import SHORTCUTS, shortcut_name_to_full_name
from ..errors import LoadError

TINY = "tiny"
RANDOM = "random:"
EMBEDDED = Path(__file__).resolve().parents[2] / "embedded"
HUB_NAME = re.compile(r"[a-zA-Z0-9][\w.-]{0,95}/[a-zA-Z0-9][\w.-]{0,95}", re.ASCII)


def random_shortcut(name: str) -> str | None:
    """The shortcut of "random:<shortcut>"; None for any other name."""
    if not name.startswith(RANDOM):
        return None
    shortcut = name.removeprefix(RANDOM).lower()
    if shortcut not in SHORTCUTS:
        raise LoadError(f"got {shortcut!r} behind {RANDOM!r}, expected one of {', '.join(SHORTCUTS)}")
    return shortcut


def local_folder(name: str) -> Path | None:
    """The folder that a name means on this machine; None for a name of the hub."""
    if name.lower() == TINY:
        return EMBEDDED
    if name.lower() in SHORTCUTS:
        return None
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return Path(path)
    if os.path.exists(path):
        raise LoadError(f"is a file; give the folder that it lies in, {Path(path).parent}")
    if HUB_NAME.fullmatch(name) and ".." not in name:
        return None
    example = shortcut_name_to_full_name("qwen3-0.6b")
    raise LoadError(
        f"is neither a folder nor a known name; give {TINY}, one of {', '.join(SHORTCUTS)}, "
        f"a name of the hub such as {example}, a folder, or {RANDOM}<shortcut>"
    )
