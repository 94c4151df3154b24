"""The price of `--batch-invariant`: prints the rates of docs/engine.md.

    python tools/batch_invariance_price.py [--model NAME] [--rounds N]

A prompt of 512 tokens, and a decode step of 1 and of 8 requests after 256 tokens, with and without, in turn.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import mlx.core as mx

from tiny_llm import LLM
from tiny_llm.cache.storage import PagedStorage
from tiny_llm.engine.sizes import PAGE_SIZE
from tiny_llm.models.packed import Batch, PackedRequest, packed_logits
from tiny_llm_tools.benchmark.clock import interleave

PROMPT, CONTEXT = 512, 256
PAGES = PROMPT // PAGE_SIZE
DTYPES = ("bfloat16", "float16", "float32")
WORK = {"prefill": (1, PROMPT), "decode, 1 request": (1, 1), "decode, 8 requests": (8, 1)}


def step(model: Any, storage: PagedStorage, requests: int, rows: int, invariant: bool) -> None:
    """One step of so many requests, each with so many new tokens."""
    context = PROMPT if rows == PROMPT else CONTEXT
    pages = [[PAGES * n + page for page in range(PAGES)] for n in range(requests)]
    packed = [PackedRequest([5] * rows, context, table) for table in pages]
    mx.eval(packed_logits(model, Batch(packed, storage, batch_invariant=invariant), storage))


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="random:qwen2-0.5b")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print("| work | type | tok/s | batch invariant | of the rate |\n| --- | --- | --: | --: | --: |")
    for dtype in DTYPES:
        model = LLM(options.model, dtype=dtype, device="cpu").model
        attention = model.layers_inner[0].self_attn
        sizes = (8 * PAGES, attention.num_kv_heads, PAGE_SIZE, attention.head_dim)
        storage = PagedStorage(len(model.layers_inner), *sizes, model.precision)
        for work, (requests, rows) in WORK.items():
            calls = {
                mode: partial(step, model, storage, requests, rows, mode == "invariant")
                for mode in ("plain", "invariant")
            }
            seconds, _ = interleave(calls, repeats=options.rounds)
            plain, invariant = (requests * rows / seconds[mode].median for mode in calls)
            print(f"| {work} | {dtype} | {plain:.0f} | {invariant:.0f} | {invariant / plain:.2f} |")


if __name__ == "__main__":
    main()
