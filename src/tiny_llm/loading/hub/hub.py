"""Models of the hub: looked up in its cache on this machine, and downloaded if they are not there."""

import os
import re
from pathlib import Path

from ..errors import LoadError
from ..files import find_file
from ..progress import Progress
from ..weights.shards import shard_names

REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")


def find_snapshot(name: str, offline: bool | None, progress: Progress) -> Path:
    """The folder of a model "owner/name": a whole one in the cache needs no network at all."""
    repository = cache_folder() / f"models--{name.replace('/', '--')}"
    folder = _current_snapshot(repository)
    if folder is not None and is_whole(folder):
        return folder
    if _is_offline() if offline is None else offline:
        state = "is not" if folder is None else "is only in part"
        raise LoadError(
            f"{state} in the cache, {cache_folder()}, and the network is forbidden; allow it once to download"
        )
    from .download import download  # brings in the hub's library, which a run from the cache does without

    return download(name, repository, progress)


def cache_folder() -> Path:
    """Where the hub's own tools keep their files, too."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    # The second is the older name of the first.
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(folder)).expanduser()


def is_whole(folder: Path) -> bool:
    """Whether a download has come to its end: weights come last."""
    try:
        names = shard_names(folder)
        needed = {"config.json", "tokenizer.json", *(names.values() if isinstance(names, dict) else names)}
        return all(find_file(folder, name) is not None for name in needed)
    except LoadError:
        return False


def _current_snapshot(repository: Path) -> Path | None:
    try:
        commit = (repository / "refs" / REVISION).read_text().strip()
    except OSError:
        return None
    folder = repository / "snapshots" / commit
    return folder if COMMIT.fullmatch(commit) and folder.is_dir() else None


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
