"""The worker processes of `bench peers`: started for a row, kept for the next, ended for another model."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benches.contestants.shared_weights import load_shared, write_gguf
from benches.contestants.worker import Worker, WorkerOptions
from benches.names import LLAMA_CPP, OPENVINO


@dataclass
class WorkerPool:
    """Its processes have one model and one number of threads at a time; `module` as of `Worker`."""

    module: str = "benches.contestants.worker"
    _workers: dict[WorkerOptions, Worker] = field(default_factory=dict)
    _folder: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    def worker(self, backend: str, model: str, dtype: str, threads: int, context: int) -> Worker:
        """The process of a backend; raises Missing if it is not installed."""
        file = ""
        if backend == LLAMA_CPP:
            dtype, file = "", str(self._gguf_file(model))
        options = WorkerOptions(backend, model, dtype, threads, context, file)
        if options not in self._workers:
            if backend == OPENVINO:
                print(f"  building and compiling {model} for OpenVINO", file=sys.stderr, flush=True)
            self._workers[options] = Worker(options, self.module)
        return self._workers[options]

    def keep_only(self, model: str, threads: int) -> None:
        """End the processes with another model or number of threads."""
        for options in [o for o in self._workers if (o.model, o.threads) != (model, threads)]:
            self._workers.pop(options).close()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._folder.cleanup()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _gguf_file(self, model: str) -> Path:
        """The weights as a file for llama.cpp; only the file of the latest model is kept."""
        path = Path(self._folder.name) / f"{model.removeprefix('random:')}.gguf"
        if not path.exists():
            for old in path.parent.glob("*.gguf"):
                old.unlink()
            checkpoint = load_shared(model)
            write_gguf(checkpoint.config, checkpoint.mlx_model, path)
        return path
