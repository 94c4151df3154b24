"""Answers a batch file by Ray Data: one task reads it, engines on the nodes answer, this process writes.

The reader runs on the node of this process, so that only this one needs the files. Ray lets it wait while
there is enough to do: a file may be larger than the memory of the cluster.
"""

import argparse
import asyncio
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import ray
from ray._private.state import available_resources_per_node  # Ray itself sums it up only
from ray.data import ActorPoolStrategy, DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from ..device import set_threads
from ..exit_codes import Failure, Refusal
from ..progress import ProgressBar
from .application import Application, BatchAnswer, start_engine, window
from .cluster_options import LOCAL, share
from .lines import BatchLine, read_requests

BLOCK = 16  # lines
REACHED_WITHIN = 10.0  # seconds
NAME_OF_ERROR = re.compile(r"^[\w.]+: ")
LINE = pyarrow.struct(
    {
        "number": pyarrow.int64(),
        "end": pyarrow.int64(),
        "custom_id": pyarrow.string(),
        "url": pyarrow.string(),
        "body": pyarrow.binary(),
        "problem": pyarrow.string(),
    }
)
ROW = pyarrow.schema({"lines": pyarrow.list_(LINE)})


class BatchFile(Datasource):  # type: ignore[misc]
    """The lines of a batch file without those in `answered`, a reference to a set."""

    def __init__(self, path: Path, answered: Any, model: str):
        super().__init__()
        self._path = path
        self._answered = answered
        self._model = model

    @property
    def supports_distributed_reads(self) -> bool:
        return False

    def estimate_inmemory_data_size(self) -> int:
        return self._path.stat().st_size

    def get_read_tasks(self, *_: Any, **__: Any) -> list[ReadTask]:
        size = self.estimate_inmemory_data_size()
        metadata = BlockMetadata(num_rows=None, size_bytes=size, input_files=None, exec_stats=None)
        return [ReadTask(partial(read_blocks, self._path, self._answered, self._model), metadata)]


def read_blocks(path: Path, answered: Any, model: str) -> Iterator[pyarrow.Table]:
    """Tables of one row each, which Ray neither joins nor splits: some lines, at most as many as BLOCK."""
    lines = read_requests(path, dict(ray.get(answered)), model)
    while block := list(islice(lines, BLOCK)):
        yield pyarrow.Table.from_pylist([{"lines": [asdict(line) for line in block]}], ROW)


class EngineActor:
    """An engine in a process of Ray, with the threads of the CPUs that Ray has granted."""

    def __init__(self, options: argparse.Namespace):
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        set_threads(str(max(int(cpus), 1)))
        self._application = Application(options, start_engine(options, lambda *_: None))

    async def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        asked = [self._application.answer(BatchLine(**line)) for line in table["lines"][0].as_py()]
        answers = await asyncio.gather(*asked)
        return pyarrow.Table.from_pylist([{"answers": [asdict(answer) for answer in answers]}])


def answer_on_cluster(
    options: argparse.Namespace,
    path: Path,
    answered: dict[bytes, str],
    progress: ProgressBar,
    write: Callable[[BatchAnswer], None],
) -> None:
    """Give `write` the answers of the engines, block by block in the order in which these end."""
    progress("starting the engines of the cluster", 0, None)
    with connection(options.ray):
        free = list(available_resources_per_node().values())
        engines, cpus, gpus = share(options, ray.cluster_resources(), free)
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # byte: a row is a block, which goes on at once
        lines = ray.data.read_datasource(
            BatchFile(path.resolve(), ray.put(answered), options.model), override_num_blocks=1, num_cpus=0
        )
        calls = max(window(options) // BLOCK, 2)
        answers = lines.map_batches(
            EngineActor,
            batch_size=None,
            batch_format="pyarrow",
            fn_constructor_args=(options,),
            compute=ActorPoolStrategy(size=engines, max_concurrent_calls_per_actor=calls),
            num_cpus=cpus,
            num_gpus=gpus,
        )
        for row in answers.iter_rows():
            for answer in row["answers"]:
                write(BatchAnswer(**answer))


@contextmanager
def connection(address: str) -> Iterator[None]:
    """Ray at this address; one that was started for this job ends with it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to Ray's authors
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its errors are raised, too
    own: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {}
    if address not in (LOCAL, "auto"):
        check_reachable(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise Failure(f"--ray: {address}: {last_line(error)}") from error
    try:
        yield
    except ray.exceptions.RayError as error:
        raise Failure(f"--ray: {last_line(error)}") from error
    finally:
        ray.shutdown()


def last_line(error: Exception) -> str:
    """What has happened: the texts of Ray's errors are tracebacks."""
    *_, last = str(error).strip().splitlines() or [type(error).__name__]
    return NAME_OF_ERROR.sub("", last)


def check_reachable(address: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        expected = "an address such as 10.0.0.1:6379, of a cluster of which this machine is a node"
        raise Refusal(f"--ray: got {address}, expected {expected}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise Failure(f"--ray: {address} cannot be reached: {error}") from error
