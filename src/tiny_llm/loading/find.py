"""From the name of a model to its folder: the embedded model, a folder of the user, a snapshot of the hub."""

import os
import re
from pathlib import Path

from ..models.names import SHORTCUTS, shortcut_name_to_full_name
from .errors import LoadError
from .hub.cache import cache_folder, current_snapshot, is_complete, repository_folder
from .progress import Progress

TINY = "tiny"
RANDOM = "random:"
EMBEDDED = Path(__file__).resolve().parents[1] / "embedded"
HUB_NAME = re.compile(r"[a-zA-Z0-9][\w.-]{0,95}/[a-zA-Z0-9][\w.-]{0,95}", re.ASCII)


def random_shortcut(name: str) -> str | None:
    """The shortcut of "random:<shortcut>"; None for any other name."""
    if not name.startswith(RANDOM):
        return None
    shortcut = name.removeprefix(RANDOM).lower()
    if shortcut not in SHORTCUTS:
        raise LoadError(f"got {shortcut!r} after {RANDOM!r}, expected one of {', '.join(SHORTCUTS)}")
    return shortcut


def folder_of(name: str, offline: bool | None, progress: Progress) -> Path:
    """The folder of a model, unless it is a random one; downloaded if necessary.

    `offline` forbids the network; None leaves that to HF_HUB_OFFLINE.
    """
    folder = local_folder(name)
    return find_snapshot(shortcut_name_to_full_name(name), offline, progress) if folder is None else folder


def local_folder(name: str) -> Path | None:
    """The embedded model, or a folder of the user; None for a model of the hub."""
    if name.lower() == TINY:
        return EMBEDDED
    if name.lower() in SHORTCUTS:
        return None
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return Path(path)
    if os.path.exists(path):
        raise LoadError(f"is a file; give its folder, {Path(path).parent}")
    if HUB_NAME.fullmatch(name) and ".." not in name:
        return None
    example = shortcut_name_to_full_name("qwen3-0.6b")
    raise LoadError(
        f"is neither a folder nor a known name; give {TINY}, one of {', '.join(SHORTCUTS)}, "
        f"a name of the hub such as {example}, a folder, or {RANDOM}<shortcut>"
    )


def find_snapshot(name: str, offline: bool | None, progress: Progress) -> Path:
    """The snapshot of a model "owner/name"; a complete one in the cache needs no network."""
    repository = repository_folder(name)
    snapshot = current_snapshot(repository)
    if snapshot is not None and is_complete(snapshot):
        return snapshot
    if _is_offline() if offline is None else offline:
        state = "is not" if snapshot is None else "is only in part"
        raise LoadError(
            f"{state} in the cache, {cache_folder()}, and offline mode is on; "
            "run once without --offline or HF_HUB_OFFLINE to download it"
        )
    from .hub.download import download  # huggingface_hub is slow to import

    return download(name, repository, progress)


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
