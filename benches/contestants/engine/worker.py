"""A process of `bench engine`, for our engine or for llama.cpp's batched decode."""

from __future__ import annotations

import json
import sys
from typing import Any

import mlx.core as mx

from benches.contestants.shared_weights import load_shared
from benches.contestants.worker import WorkerOptions, serve
from benches.names import LLAMA_CPP


def service(options: WorkerOptions) -> Any:
    """An EngineService, or a LlamaBatch."""
    if options.backend == LLAMA_CPP:
        from benches.contestants.engine.llama_batch import LlamaBatch

        return LlamaBatch(options.file, options.threads, options.context)
    from benches.contestants.engine.service import CheckpointLLM, EngineService

    mx.set_default_device(mx.cpu)
    return EngineService(CheckpointLLM(load_shared(options.model), options.dtype), options.context)


if __name__ == "__main__":
    serve(lambda: service(WorkerOptions(**json.loads(sys.argv[1]))))
