"""Downloads a model from the hub into its cache, with progress, and with errors in one clear sentence."""

import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from ..errors import LoadError
from .progress import Progress
from .weights.memory import GIBIBYTE

# What is downloaded: no code, and nothing pickled. Weights come last, so a snapshot with weights is complete.
SETTINGS = re.compile(
    r"(generation_|tokenizer_)?config\.json|tokenizer\.json|chat_template\.jinja|model\.safetensors\.index\.json"
)
WEIGHTS = re.compile(r"model[\w.-]*\.safetensors", re.ASCII)
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MAKE_ROOM = "make room, or set HF_HOME to a folder on another disk"
REQUEST_TIMEOUT = 10.0  # seconds


def download(name: str, repository: Path, progress: Progress) -> Path:
    """Download the newest commit of a model into its folder of the cache; return its snapshot."""
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    with _explained(name, endpoint):
        progress(f"querying the hub for {name}", 0, None)
        info = HfApi(endpoint=endpoint).model_info(name, files_metadata=True, timeout=REQUEST_TIMEOUT)
        snapshot = repository / "snapshots" / str(info.sha)
        files = info.siblings or []
        settings = [file for file in files if SETTINGS.fullmatch(file.rfilename)]
        weights = [file for file in files if WEIGHTS.fullmatch(file.rfilename)]
        if not weights:
            raise LoadError(
                "has no model.safetensors files on the hub; choose a repository with safetensors files"
            )
        _remove_unfinished(repository)
        size, free = _missing_bytes(snapshot, settings + weights), shutil.disk_usage(repository).free
        if size > free:
            room = f"{repository} has room for {free / GIBIBYTE:.1f} GiB"
            raise LoadError(f"takes {size / GIBIBYTE:.1f} GiB, and {room}; {MAKE_ROOM}")
        for task, group in (("downloading settings", settings), ("downloading weights", weights)):
            _download_files(
                task,
                _missing_bytes(snapshot, group),
                progress,
                name,
                revision=info.sha,
                allow_patterns=[file.rfilename for file in group],
                cache_dir=repository.parent,
                endpoint=endpoint,
                etag_timeout=REQUEST_TIMEOUT,
            )
            for file in group:
                _check_content(snapshot / file.rfilename, file)
        reference = repository / "refs/main"  # the newest commit: a reader sees the old one or this one
        reference.parent.mkdir(exist_ok=True)
        draft = reference.with_name(f"main.{os.getpid()}")
        draft.write_text(str(info.sha))
        draft.replace(reference)
    return snapshot


def _download_files(task: str, total: int, progress: Progress, name: str, **options: Any) -> None:
    """Call `snapshot_download` in another thread: here, it would finish its open files after Ctrl-C.

    An exception of `progress`, or Ctrl-C, ends the download: each thread stops at its next chunk of 10 MB.
    """
    reported, stopped, lock = 0, threading.Event(), threading.Lock()

    def report(done: int) -> None:
        """Bytes received and bytes written are counted by two bars: the larger one is reported."""
        nonlocal reported
        with lock:
            if stopped.is_set():
                raise InterruptedError("the download was stopped")
            if done > reported:
                reported = done
                try:
                    progress(task, min(done, total), total)
                except BaseException:
                    stopped.set()
                    raise

    class Bar(tqdm):
        """Draws nothing; of the several that huggingface_hub makes, two count bytes."""

        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options | {"disable": True})  # type: ignore[no-untyped-call]
            self.counts_bytes = options.get("unit") == "B"

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            if self.counts_bytes:
                report(self.n)

    pool = ThreadPoolExecutor(1)
    try:
        pool.submit(partial(snapshot_download, name, tqdm_class=Bar, **options)).result()
    except BaseException:
        stopped.set()
        raise
    finally:
        pool.shutdown(wait=False)


def _missing_bytes(snapshot: Path, files: list[Any]) -> int:
    return sum(file.size or 0 for file in files if not (snapshot / file.rfilename).exists())


def _remove_unfinished(repository: Path) -> None:
    """Delete the partial files of downloads that were killed: no later download resumes them."""
    repository.mkdir(parents=True, exist_ok=True)
    for unfinished in repository.glob("blobs/*.*.incomplete"):
        lock = repository.parent / ".locks" / repository.name / f"{unfinished.name.partition('.')[0]}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        # A running download holds the lock. The mode lets other users of the group take it later.
        with suppress(Timeout), FileLock(lock, timeout=0, mode=0o664):
            unfinished.unlink(missing_ok=True)


def _check_content(path: Path, file: Any) -> None:
    """Compare a file with the hash that the hub announced; a damaged one is removed from the cache."""
    if not path.exists():
        raise LoadError(f"{file.rfilename}: is missing after the download; try again")
    with path.open("rb") as content:
        if file.lfs is not None:
            expected, found = file.lfs.sha256, hashlib.file_digest(content, "sha256")
        else:  # as git computes it: the size is part of it
            beginning = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
            expected, found = file.blob_id, hashlib.file_digest(content, lambda: beginning)
    if found.hexdigest() != expected:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise LoadError(f"{file.rfilename}: is not what the hub announced, and is removed; try again")


@contextmanager
def _explained(name: str, endpoint: str) -> Iterator[None]:
    """Turn every failure into one sentence."""
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
    except Exception as error:  # of the network library, which differs between versions of huggingface_hub
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise LoadError(f"the disk is full ({error.strerror}); {MAKE_ROOM}") from error
        if isinstance(error, OSError) and error.filename is not None:  # errors of the network have no path
            reason = f"{error.filename} cannot be used ({error.strerror})"
            raise LoadError(f"{reason}; fix that, or set HF_HOME to another folder") from error
        cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else error
        reason = f"{type(cause).__name__}: {cause}".partition("\n")[0]
        raise LoadError(f"the download from {endpoint} failed ({reason}); check the network") from error
