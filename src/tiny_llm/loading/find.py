"""From the name of a model to its folder: the embedded model, a folder of the user, a snapshot of the hub.

The hub's cache has the layout that huggingface_hub and its tools share. It is read without huggingface_hub,
which is slow to import and reads the environment only once.
"""

import os
import re
from pathlib import Path

from ..errors import LoadError
from ..models.names import SHORTCUTS, shortcut_name_to_full_name
from .files import find_file
from .progress import Progress
from .weights.read import shard_names

TINY = "tiny"
RANDOM = "random:"
EMBEDDED = Path(__file__).resolve().parents[1] / "embedded"
HUB_NAME = re.compile(r"[a-zA-Z0-9][\w.-]{0,95}/[a-zA-Z0-9][\w.-]{0,95}", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


def find_source(name: str, offline: bool | None, progress: Progress) -> str | Path:
    """The shortcut of a random model, or the folder of another, which is downloaded if necessary.

    `offline` forbids the network; None leaves that to HF_HUB_OFFLINE.
    """
    return (
        random_shortcut(name)
        or local_folder(name)
        or find_snapshot(shortcut_name_to_full_name(name), offline, progress)
    )


def random_shortcut(name: str) -> str | None:
    """The shortcut of "random:<shortcut>"; None for any other name."""
    if not name.startswith(RANDOM):
        return None
    shortcut = name.removeprefix(RANDOM).lower()
    if shortcut not in SHORTCUTS:
        raise LoadError(f"got {shortcut!r} after {RANDOM!r}, expected one of {', '.join(SHORTCUTS)}")
    return shortcut


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
    cache = cache_folder()
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = current_snapshot(repository)
    if snapshot is not None and is_complete(snapshot):
        return snapshot
    if offline is None:
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    if offline:
        state = "is not" if snapshot is None else "is only in part"
        raise LoadError(
            f"{state} in the cache, {cache}, and offline mode is on; "
            "run once without --offline or HF_HUB_OFFLINE to download it"
        )
    from .download import download

    return download(name, repository, progress)


def cache_folder() -> Path:
    """The folder of all models of the hub, from the environment."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    # The second is the older name of the first.
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(folder)).expanduser()


def current_snapshot(repository: Path) -> Path | None:
    """The folder of the newest commit that was downloaded; None if there is none."""
    try:
        commit = (repository / "refs/main").read_text().strip()
    except OSError:
        return None
    folder = repository / "snapshots" / commit
    return folder if COMMIT.fullmatch(commit) and folder.is_dir() else None


def is_complete(snapshot: Path) -> bool:
    """Whether a snapshot has a config, a tokenizer and all shards; downloads bring the shards last."""
    try:
        names = shard_names(snapshot)
        needed = {"config.json", "tokenizer.json", *(names.values() if isinstance(names, dict) else names)}
        return all(find_file(snapshot, name) is not None for name in needed)
    except LoadError:
        return False
