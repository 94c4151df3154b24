"""The hub's cache on this machine, in the layout that huggingface_hub and its tools share."""

import os
import re
from pathlib import Path

from ..errors import LoadError
from ..files import find_file
from ..weights.read import shard_names

REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")


def cache_folder() -> Path:
    """The folder of all models of the hub, from the environment."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    # The second is the older name of the first.
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(folder)).expanduser()


def repository_folder(name: str) -> Path:
    """The folder of a model "owner/name": its snapshots, their files by hash (blobs), and its refs."""
    return cache_folder() / f"models--{name.replace('/', '--')}"


def current_snapshot(repository: Path) -> Path | None:
    """The folder of the newest commit that was downloaded; None if there is none."""
    try:
        commit = (repository / "refs" / REVISION).read_text().strip()
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


def set_current_snapshot(repository: Path, commit: str) -> None:
    """Record the newest commit, atomically: a reader sees the old one or the new one."""
    reference = repository / "refs" / REVISION
    reference.parent.mkdir(exist_ok=True)
    draft = reference.with_name(f"{REVISION}.{os.getpid()}")
    draft.write_text(commit)
    draft.replace(reference)
