"""Targets of `pdm bench peers`."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.models import Case
from benches.harness.row import Row, Verdict, share, speedup
from benches.names import BATCH, LLAMA_CPP, MLX_LM, TINY_LLM

DECODE_OVER_LLAMA, PREFILL_OVER_LLAMA = 1.0, 2.0  # with any number of threads
DECODE_OVER_MLX_LM, PREFILL_OVER_MLX_LM = 20.0, 200.0
SHARE_OF_BANDWIDTH = 0.7
PREFILL_RATE = 1000.0  # tokens per second, of 512
BATCH_GAIN = {"bfloat16": 4.0, "float32": 3.0}
STEP_SECONDS = 1e-3
START_SECONDS = {"first printed token": 2.0, "import": 0.4}
MEMORY_SLACK, MEMORY_EXTRA = 1.25, 100e6


def judge(case: Case, row: Row) -> Iterator[Verdict]:
    """There is no target against OpenVINO."""
    match case.kind:
        case "decode" if LLAMA_CPP in case.peers:
            yield speedup(row, LLAMA_CPP, DECODE_OVER_LLAMA)
            yield share(row.subject(), "share of the read bandwidth", SHARE_OF_BANDWIDTH)
        case "decode" if MLX_LM in case.peers:
            yield speedup(row, MLX_LM, DECODE_OVER_MLX_LM)
        case "decode":
            yield Verdict("time of a step", "<=", STEP_SECONDS, row.seconds(TINY_LLM), "s")
        case "prefill" if LLAMA_CPP in case.peers:
            yield speedup(row, LLAMA_CPP, PREFILL_OVER_LLAMA)
            if case.prompt == 512 and case.group == "prefill" and row.threads > 1:
                seconds = row.seconds(TINY_LLM)
                yield Verdict("rate", ">=", PREFILL_RATE, case.prompt / seconds if seconds else None, "tok/s")
        case "prefill":
            yield speedup(row, MLX_LM, PREFILL_OVER_MLX_LM)
        case "batch":
            single, batch = row.seconds(TINY_LLM), row.seconds(BATCH)
            gain = single / batch if single and batch else None  # seconds of a token, of any sequence
            yield Verdict("rate over one sequence", ">=", BATCH_GAIN[case.dtype], gain, "x")
        case "start":
            yield Verdict(case.what, "<=", START_SECONDS[case.what], row.seconds(TINY_LLM), "s")


def memory_verdict(weights: int, cache: int, peak: int) -> Verdict:
    limit = MEMORY_SLACK * (weights + cache) + MEMORY_EXTRA
    return Verdict("peak memory of the process", "<=", limit, peak, "B")
