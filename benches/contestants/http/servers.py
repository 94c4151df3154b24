"""The servers of `bench serving`, each in a process of its own, and the files of their models."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from benches.contestants.http.model_files import write_folder, write_gguf_with_tokenizer
from benches.contestants.shared_weights import load_shared
from benches.harness.machine import ROOT
from benches.names import LLAMA_CPP, MLX_LM, TINY_LLM, Missing
from tiny_llm.loading.find import EMBEDDED, random_shortcut
from tiny_llm_tools.benchmark.serving.process import ServerProcess

CONTEXT = 4096  # tokens of a request of llama-cpp-python's server
NEEDED = {
    LLAMA_CPP: (
        ("llama_cpp", "fastapi", "uvicorn", "sse_starlette", "starlette_context", "pydantic_settings"),
        "llama-cpp-python[server]",
    ),
    MLX_LM: (("mlx_lm",), "mlx-lm"),
}


class ModelFiles:
    """The same weights for each server, written when first asked for, until `close`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def folder(self, model: str, dtype: str | None = None) -> Path:
        """For tiny_llm and mlx-lm."""
        if random_shortcut(model) is None and dtype is None:
            return EMBEDDED
        path = self._path(model, dtype or "as-is")
        if not path.exists():
            write_folder(load_shared(model), path, None if dtype is None else getattr(mx, dtype))
        return path

    def gguf(self, model: str) -> Path:
        path = self._path(model, "q4_0.gguf")
        if not path.exists():
            write_gguf_with_tokenizer(load_shared(model), path)
        return path

    def close(self) -> None:
        self._folder.cleanup()

    def _path(self, model: str, kind: str) -> Path:
        return Path(self._folder.name, f"{model.removeprefix('random:')}-{kind}")


def start(
    name: str,
    files: ModelFiles,
    model: str,
    threads: int,
    dtype: str | None = None,
    options: Sequence[str] = (),
) -> ServerProcess:
    """A server that has not been started yet; Missing if its packages are not installed."""
    environment = {"TINY_LLM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    if name == TINY_LLM:
        program = ["-m", "benches.contestants.http.serve_without_drafts", "--port", "0", *options]
        command = [sys.executable, *program, "--model", str(files.folder(model, dtype))]
        return ServerProcess(command, environment=environment)
    modules, package = NEEDED[name]
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        raise Missing(f"{absent[0]} is not installed: pip install '{package}'")
    port = _free_port()
    if name == LLAMA_CPP:
        program = ["-m", "llama_cpp.server", "--model", str(files.gguf(model)), "--n_ctx", str(CONTEXT)]
        program += ["--n_threads", str(threads), "--n_threads_batch", str(threads)]
        program += ["--interrupt_requests", "False"]  # or each request ends the answer before it
    else:
        program = ["-m", "mlx_lm", "server", "--model", str(files.folder(model, dtype))]
    command = [sys.executable, *program, "--host", "127.0.0.1", "--port", str(port)]
    return ServerProcess(command, f"http://127.0.0.1:{port}", "/v1/models", environment)


def _free_port() -> int:
    """A port for a server that does not choose one itself."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port
