"""`pdm bench gpu`: whole models on a GPU, tiny_llm and mlx-lm on the same weights, in turn."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from benches.names import MLX_LM, TINY_LLM
from tiny_llm.cli.arguments import integer
from tiny_llm.cli.output_files import output_file, write_whole
from tiny_llm.generation.defaults import prefill_chunk
from tiny_llm.generation.tokens import SequenceState, TokenSampler, cached_tokens, next_logits
from tiny_llm.loading.weights.random_model import random_config
from tiny_llm.models import dispatch_model

SEQUENCES = 16
ANSWER = 128  # tokens
# work: model, bits of the weights (None: bfloat16), prompt tokens
DECODE = [
    (model, bits, prompt)
    for model in ("qwen2-0.5b", "qwen2-7b")
    for bits in (4, None)
    for prompt in (128, 4096)
]


@dataclass(frozen=True, slots=True)
class Pair:
    """One model for both contestants, on the same arrays."""

    ours: Any
    theirs: Any

    @staticmethod
    def random(shortcut: str, bits: int | None) -> Pair:
        from importlib import import_module

        from mlx.nn.layers.quantized import quantize

        config = random_config(shortcut)
        module: Any = import_module(f"mlx_lm.models.{config.model_type}")
        theirs = module.Model(module.ModelArgs.from_dict(vars(config)))
        theirs.set_dtype(mx.bfloat16)
        if bits is not None:
            quantize(theirs, 64, bits)
        mx.eval(theirs.parameters())
        ours = dispatch_model(shortcut, theirs, 2, enable_flash_attn=True, dtype=mx.bfloat16)
        return Pair(ours, theirs)


def our_tokens(model: Any, prompt: Sequence[int], count: int) -> Iterator[int]:
    """The loop of `LLM` and the command line."""
    yield from cached_tokens(
        model, list(prompt), TokenSampler(list(prompt)), count, prefill_step=prefill_chunk()
    )


def their_tokens(model: Any, prompt: Sequence[int], count: int) -> Iterator[int]:
    """mlx-lm's own loop."""
    from mlx_lm.generate import generate_step

    for token, _ in generate_step(mx.array(prompt), model, max_tokens=count):
        yield int(token)


def our_batch(model: Any, prompts: Sequence[Sequence[int]], count: int) -> Iterator[int]:
    """Rounds of a batch in decode, as `run_batch` computes them: the number of tokens of each round."""
    from tiny_llm.generation.batching import make_batch_cache
    from tiny_llm.sampling.select import argmax

    caches = make_batch_cache(model, len(prompts), 32768)
    tokens, offsets = [], []
    for slot, prompt in enumerate(prompts):
        sequence = SequenceState(model)
        tokens.append(argmax(sequence.prefill(list(prompt), prefill_chunk())).item())
        for cache, prefilled in zip(caches, sequence.cache, strict=True):
            cache.add_request(prefilled, slot)
        offsets.append(len(prompt))
    yield len(prompts)
    for _ in range(count - 1):
        logits = next_logits(model, mx.array(tokens)[:, None], offsets, caches)
        tokens: Any = argmax(logits).tolist()
        offsets = [offset + 1 for offset in offsets]
        yield len(prompts)


def their_batch(model: Any, prompts: Sequence[Sequence[int]], count: int) -> Iterator[int]:
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(model, max_tokens=count, completion_batch_size=len(prompts))
    generator.insert([list(prompt) for prompt in prompts], [count] * len(prompts))
    while responses := generator.next_generated():
        yield len(responses)
    generator.close()


def timed(tokens: Iterator[int]) -> tuple[float, float]:
    """Seconds to the first item, and items a second after it."""
    begin = time.perf_counter()
    times = []
    for _ in tokens:
        times.append(time.perf_counter())
    return times[0] - begin, (len(times) - 1) / (times[-1] - times[0])


def prompt_of(length: int, seed: int = 0) -> list[int]:
    ids: Any = mx.random.randint(0, 90000, (length,), key=mx.random.key(seed)).tolist()
    return ids


def model_rows(
    shortcut: str, bits: int | None, lengths: Sequence[int], repeats: int
) -> Iterator[dict[str, Any]]:
    pair = Pair.random(shortcut, bits)
    weights = f"{shortcut} {'bfloat16' if bits is None else f'{bits} bits'}"
    for length in lengths:
        prompt = prompt_of(length)
        runs: dict[str, list[tuple[float, float]]] = {TINY_LLM: [], MLX_LM: []}
        for repeat in range(repeats + 1):
            for name, tokens in (
                (TINY_LLM, our_tokens(pair.ours, prompt, ANSWER)),
                (MLX_LM, their_tokens(pair.theirs, prompt, ANSWER)),
            ):
                result = timed(tokens)
                if repeat:
                    runs[name].append(result)
        yield {
            "work": f"{weights}, prompt of {length}",
            "unit": "ms",
            **{n: 1e3 * median(r[0] for r in v) for n, v in runs.items()},
        }
        yield {
            "work": f"{weights}, decode after {length}",
            "unit": "tok/s",
            **{n: median(r[1] for r in v) for n, v in runs.items()},
        }


def batch_rows(shortcut: str, bits: int | None, repeats: int) -> Iterator[dict[str, Any]]:
    pair = Pair.random(shortcut, bits)
    prompts = [prompt_of(128 + 4 * i, seed=i) for i in range(SEQUENCES)]
    runs: dict[str, list[float]] = {TINY_LLM: [], MLX_LM: []}
    for repeat in range(repeats + 1):
        for name, tokens in (
            (TINY_LLM, our_batch(pair.ours, prompts, ANSWER)),
            (MLX_LM, their_batch(pair.theirs, prompts, ANSWER)),
        ):
            rate = timed(tokens)[1] * SEQUENCES
            if repeat:
                runs[name].append(rate)
    weights = "bfloat16" if bits is None else f"{bits} bits"
    yield {
        "work": f"{shortcut} {weights}, decode, {SEQUENCES} sequences",
        "unit": "tok/s",
        **{n: median(v) for n, v in runs.items()},
    }


def peak_memory(contestant: str, shortcut: str, bits: int | None, length: int) -> float:
    """In a process of its own: MB at the peak of a prompt and 32 tokens."""
    pair = Pair.random(shortcut, bits)
    if contestant == MLX_LM:
        object.__setattr__(pair, "ours", None)
    mx.clear_cache()
    mx.reset_peak_memory()
    run = our_tokens if contestant == TINY_LLM else their_tokens
    model = pair.ours if contestant == TINY_LLM else pair.theirs
    for _ in run(model, prompt_of(length), 32):
        pass
    return mx.get_peak_memory() / 1e6


def first_answer(contestant: str, shortcut: str) -> float:
    """In a process of its own, with an empty cache of compiled kernels: seconds to the end of 16 tokens."""
    begin = time.perf_counter()
    pair = Pair.random(shortcut, 4)
    run = our_tokens if contestant == TINY_LLM else their_tokens
    model = pair.ours if contestant == TINY_LLM else pair.theirs
    for _ in run(model, prompt_of(24), 16):
        pass
    return time.perf_counter() - begin


def in_process(function: str, *arguments: Any) -> float:
    code = f"import benches.gpu as g; print('RESULT', g.{function}(*{arguments!r}))"
    with tempfile.TemporaryDirectory() as folder:
        environment = (
            {**os.environ, "MLX_PTX_CACHE_DIR": folder} if function == "first_answer" else dict(os.environ)
        )
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        if function == "first_answer":
            print(
                arguments[0],
                sorted((p.name, round(p.stat().st_mtime, 1)) for p in Path(folder).rglob("*.ptx")),
                file=sys.stderr,
            )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split("RESULT")[1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench gpu")
    parser.add_argument("--rows", nargs="+", default=["models", "batch", "tiny", "memory", "start"])
    parser.add_argument("--models", nargs="+", default=["qwen2-0.5b", "qwen2-7b"])
    parser.add_argument("--repeats", type=integer(1), default=5)
    parser.add_argument("--json", type=output_file)
    options = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        ours, theirs = row[TINY_LLM], row[MLX_LM]
        row["ratio"] = ours / theirs if row["unit"] == "tok/s" else theirs / ours
        rows.append(row)
        print(f"{row['work']:48} {ours:10.1f} {theirs:10.1f} {row['unit']:6} {row['ratio']:.2f}x", flush=True)

    if "start" in options.rows:
        add(
            {
                "work": "first answer, nothing compiled",
                "unit": "s",
                **{n: in_process("first_answer", n, "qwen2-0.5b") for n in (TINY_LLM, MLX_LM)},
            }
        )
    for shortcut in options.models:
        for bits in (4, None):
            if "models" in options.rows:
                for row in model_rows(shortcut, bits, (128, 512, 4096), options.repeats):
                    add(row)
            if "batch" in options.rows:
                for row in batch_rows(shortcut, bits, options.repeats):
                    add(row)
            if "memory" in options.rows:
                for length in (128, 4096):
                    add(
                        {
                            "work": f"{shortcut} {bits or 16} bits, peak memory, prompt of {length}",
                            "unit": "MB",
                            **{
                                n: in_process("peak_memory", n, shortcut, bits, length)
                                for n in (TINY_LLM, MLX_LM)
                            },
                        }
                    )
    if options.json:
        write_whole(
            options.json, json.dumps({"device": mx.device_info(mx.gpu), "rows": rows}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
