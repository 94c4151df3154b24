"""Peak memory of a fresh process of tiny_llm: the model, Python and MLX, without the benchmarks.

`python -m benches.contestants.footprint MODEL DTYPE TOKENS` loads a model and fills that much of its context.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from benches.harness.machine import ROOT

OUTPUT_TOKENS = 16  # of the tokens; the others are the prompt


def footprint(model: str, dtype: str, tokens: int, threads: int) -> tuple[int, int]:
    """Bytes of the weights, and the peak memory of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benches.contestants.footprint", model, dtype, str(tokens)],
        cwd=ROOT,
        env={
            **os.environ,
            "TINY_LLM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stdout=subprocess.PIPE,
        check=True,
    )
    weights, peak = json.loads(done.stdout)
    return weights, peak


def _main(name: str, dtype: str, tokens: int) -> tuple[int, int]:
    import mlx.core as mx

    from tiny_llm.cli.build_backend import build_stage
    from tiny_llm.cli.loaders import DEFAULT_LOADER, LOADERS
    from tiny_llm.loading import load
    from tiny_llm.loading.weights.tree import named_arrays, named_parts
    from tiny_llm_tools.benchmark.backends import tiny_llm_backend
    from tiny_llm_tools.benchmark.requests import BYTE_TOKENS, BenchRequest

    mx.set_default_device(mx.cpu)
    checkpoint = load(name)
    model = build_stage(checkpoint, LOADERS[DEFAULT_LOADER], True, getattr(mx, dtype))
    prompt = tuple(BYTE_TOKENS + token % 1000 for token in range(tokens - OUTPUT_TOKENS))
    for _ in tiny_llm_backend("tiny_llm", model).generate(BenchRequest(prompt, OUTPUT_TOKENS)):
        pass
    parts = (named_arrays(part, key) for key, part in named_parts(checkpoint.mlx_model))
    return sum(array.nbytes for arrays in parts for array in arrays.values()), _high_water()


def _high_water() -> int:
    """Peak memory of this program alone; on Linux `ru_maxrss` includes that of the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
