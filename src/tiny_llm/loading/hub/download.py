"""Downloading a model from the hub, file by file, with progress and errors that a person understands."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from ..errors import LoadError
from ..progress import Progress
from ..weights.memory import GIBIBYTE
from .cache import set_current_snapshot

# In this order: whoever has a file of the last kind has all others, too.
WANTED = [
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"(generation_|tokenizer_)?config\.json|tokenizer\.json|chat_template\.jinja",
        r"model\.safetensors\.index\.json",
        r"model[\w.-]*\.safetensors",
    )
]
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MAKE_ROOM = "make room, or set HF_HOME to a folder on another disk"
PATIENCE = 10.0  # seconds to wait for an answer


def download(name: str, repository: Path, progress: Progress) -> Path:
    """Bring the files of a model into its folder of the cache; return the folder of its newest commit."""
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    with _explained(name, endpoint):
        progress(f"asking for {name}", 0, None)
        info = HfApi(endpoint=endpoint).model_info(name, files_metadata=True, timeout=PATIENCE)
        files = _wanted(info.siblings or [])
        _remove_unfinished(repository)
        _check_disk(repository, sum(file.size or 0 for file in files))
        for file in files:
            path = hf_hub_download(
                name,
                file.rfilename,
                revision=info.sha,
                cache_dir=repository.parent,
                endpoint=endpoint,
                etag_timeout=PATIENCE,
                tqdm_class=_reporter(file.rfilename, progress),
            )
            _check_content(Path(path), file)
        set_current_snapshot(repository, str(info.sha))
    return repository / "snapshots" / str(info.sha)


def _wanted(files: list[Any]) -> list[Any]:
    """The files to download, in order; never code, never anything pickled."""
    wanted = [file for kind in WANTED for file in files if kind.fullmatch(file.rfilename)]
    if not any(WANTED[-1].fullmatch(file.rfilename) for file in wanted):
        raise LoadError("has no weights in model.safetensors files on the hub; take another edition of it")
    return wanted


def _remove_unfinished(repository: Path) -> None:
    """Delete the partial files of downloads that were killed: no later download resumes them."""
    repository.mkdir(parents=True, exist_ok=True)
    for partial in repository.glob("blobs/*.*.incomplete"):
        lock = repository.parent / ".locks" / repository.name / f"{partial.name.partition('.')[0]}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        # A running download holds the lock. The mode lets other users of the group take it later.
        with suppress(Timeout), FileLock(lock, timeout=0, mode=0o664):
            partial.unlink(missing_ok=True)


def _check_disk(repository: Path, size: int) -> None:
    free = shutil.disk_usage(repository).free
    if size > free:
        needed = f"takes {size / GIBIBYTE:.1f} GiB, and {repository} has room for {free / GIBIBYTE:.1f} GiB"
        raise LoadError(f"{needed}; {MAKE_ROOM}")


def _check_content(path: Path, file: Any) -> None:
    """Compare a file with the hash that the hub announced; a damaged one does not stay in the cache."""
    with path.open("rb") as content:
        if file.lfs is not None:
            expected, found = file.lfs.sha256, hashlib.file_digest(content, "sha256")
        else:  # as git counts: the size is part of it
            beginning = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
            expected, found = file.blob_id, hashlib.file_digest(content, lambda: beginning)
    if found.hexdigest() != expected:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise LoadError(f"{file.rfilename}: is not what the hub announced, and is removed; try again")


def _reporter(name: str, progress: Progress) -> type[tqdm]:
    """What the hub's library takes for a progress bar; it shows nothing itself."""

    class Report(tqdm):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options | {"disable": True})  # type: ignore[no-untyped-call]
            progress(f"downloading {name}", self.n, self.total)

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            progress(f"downloading {name}", self.n, self.total)

    return Report


@contextmanager
def _explained(name: str, endpoint: str) -> Iterator[None]:
    """Turn what can happen on the way into one sentence."""
    try:
        yield
    except LoadError:
        raise
    except GatedRepoError as error:
        raise LoadError(
            f"is gated: accept its terms on {endpoint}/{name}, then log in with 'hf auth login'"
        ) from error
    except RepositoryNotFoundError as error:
        raise LoadError(
            f"is not on the hub, {endpoint}, or is private; check the name, or log in with 'hf auth login'"
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise LoadError(f"the hub, {endpoint}, answered with status {status}; try again later") from error
    except Exception as error:  # of the network library, which is another one in each version of the hub's
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise LoadError(f"the disk is full ({error.strerror}); {MAKE_ROOM}") from error
        if isinstance(error, OSError) and error.filename is not None:  # those of the network have no path
            reason = f"{error.filename} cannot be used ({error.strerror})"
            raise LoadError(f"{reason}; mend that, or set HF_HOME to another folder") from error
        cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else error
        reason = f"{type(cause).__name__}: {cause}".partition("\n")[0]
        raise LoadError(f"the download from {endpoint} failed ({reason}); check the network") from error
