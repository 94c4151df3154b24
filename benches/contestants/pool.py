"""The processes of a contest: opened when a row needs them, kept for the next, closed for another model."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benches.contestants.names import LLAMA_CPP, Seat
from benches.contestants.shared_weights import load_twin, write_gguf
from benches.contestants.worker import Worker


@dataclass
class Hall:
    """Who sits in it works on one model with one number of threads."""

    _workers: dict[Seat, Worker] = field(default_factory=dict)
    _folder: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    def worker(self, program: str, model: str, dtype: str, threads: int, context: int) -> Worker:
        """The process of a program; raises Missing where it cannot take part."""
        file = ""
        if program == LLAMA_CPP:
            dtype, file = "", str(self._file(model))
        seat = Seat(program, model, dtype, threads, context, file)
        if seat not in self._workers:
            self._workers[seat] = Worker(seat)
        return self._workers[seat]

    def clear(self, model: str, threads: int) -> None:
        """Let those go who are not needed for that model and number of threads."""
        for seat in [s for s in self._workers if (s.model, s.threads) != (model, threads)]:
            self._workers.pop(seat).close()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._folder.cleanup()

    def __enter__(self) -> Hall:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _file(self, model: str) -> Path:
        """The weights as a file for llama.cpp; only that of the latest model is kept."""
        path = Path(self._folder.name) / f"{model.removeprefix('random:')}.gguf"
        if not path.exists():
            for old in path.parent.glob("*.gguf"):
                old.unlink()
            checkpoint = load_twin(model)
            write_gguf(checkpoint.config, checkpoint.mlx_model, path)
        return path
