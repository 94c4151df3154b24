"""Train the embedded model in one run of a few minutes, and write the exported model, the curve and the log.

python -m training --out FOLDER --minutes 6         on a GPU with MLX's CUDA back end
python -m training --out FOLDER --steps 20 --small  a short trial on any machine
"""

import argparse
import json
import math
import random
import time
from functools import partial
from itertools import count
from pathlib import Path

import mlx.core as mx

from training.corpus.batches import Encoder, in_rows, rows_per_step, shards, steps
from training.corpus.mixture import KINDS, messages, of_kind
from training.curve import draw
from training.evaluation.answers import dense_weights
from training.model.adamw import AdamW
from training.model.config import ModelConfig
from training.model.export import export_quantized
from training.model.forward import Weights, initial_weights, loss

EMBEDDED = Path(__file__).parent.parent / "src/tiny_llm/embedded"
WARM_UP, ROUNDING_FROM = 0.02, 0.7  # as fractions of the run
REPORTS, EXPORTS = 60, 4  # per run
Batch = tuple[list[mx.array], list[mx.array]]


def to_device(pairs) -> Batch:
    return [mx.array(tokens.astype("int32")) for tokens, _ in pairs], [
        mx.array(learned) for _, learned in pairs
    ]


def held_out_batches(tokenizer: Path, seed: int, size: int) -> dict[str, Batch]:
    """Conversations with subjects, numbers and questions that training never sees, by kind."""
    encode, rng = Encoder(tokenizer), random.Random(seed)
    result = {}
    for kind in KINDS:
        rows = in_rows([encode(messages(rng, of_kind(rng, kind, holdout=True))) for _ in range(size)])
        result[kind] = to_device([pair for pair in rows.values() if len(pair[0])])
    return result


def learning_rate(progress: float, peak: float) -> float:
    if progress < WARM_UP:
        return peak * progress / WARM_UP
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


def make_step(weights: Weights, optimizer: AdamW, config: ModelConfig, dtype: mx.Dtype, quantize: bool):
    state = [weights, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(tokens: list[mx.array], learned: list[mx.array], rate: mx.array) -> mx.array:
        value, gradients = mx.value_and_grad(loss)(weights, tokens, learned, config, dtype, quantize)
        optimizer.apply(weights, gradients, rate)
        return value

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, default=EMBEDDED / "tokenizer.json")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="length of the training, for a run bounded by time"
    )
    parser.add_argument(
        "--steps", type=int, default=0, help="length of the training in steps, which makes it repeatable"
    )
    parser.add_argument("--tokens", type=int, default=32768, help="tokens per step")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument(
        "--start-from", type=Path, help="continue from an exported folder, with rounding from the first step"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--small", action="store_true", help="two narrow layers and few tokens, to try the program"
    )
    arguments = parser.parse_args()
    if not arguments.steps and arguments.minutes == math.inf:
        parser.error("name --minutes or --steps")

    config = ModelConfig(hidden_size=256, num_hidden_layers=2, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1) if arguments.small else ModelConfig()  # fmt: skip
    dtype = mx.bfloat16 if mx.default_device() == mx.gpu else mx.float32
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = (arguments.out / "train.log").open("w")

    def say(text: str) -> None:
        print(text, flush=True)
        print(text, file=log, flush=True)

    began = time.perf_counter()
    source = shards(arguments.tokenizer, arguments.seed, arguments.workers)
    per_step = rows_per_step(next(source), arguments.tokens)
    batches = steps(source, per_step)
    held_out = held_out_batches(arguments.tokenizer, arguments.seed + 1, 8 if arguments.small else 128)
    weights = initial_weights(config, arguments.seed)
    if arguments.start_from:
        weights = {name: w.astype(mx.float32) for name, w in dense_weights(arguments.start_from).items()}
    rounding_from = 0.0 if arguments.start_from else ROUNDING_FROM
    optimizer = AdamW(weights)
    mx.eval(weights, optimizer.state)
    parameters = sum(w.size for w in weights.values())
    tokens_per_step = sum(length * rows for length, rows in per_step.items())
    say(
        f"{parameters:,} parameters, {tokens_per_step:,} tokens per step: {per_step}, {dtype}, {mx.default_device()}"
    )

    dense = make_step(weights, optimizer, config, dtype, quantize=False)
    rounding = make_step(weights, optimizer, config, dtype, quantize=True)

    def held_out_losses(quantize: bool) -> dict[str, float]:
        return {
            kind: round(loss(weights, *batch, config, dtype, quantize).item(), 4)
            for kind, batch in held_out.items()
        }

    for step in (
        (dense, rounding) if rounding_from else (rounding,)
    ):  # compile before the clock starts: a step at rate zero changes no weight
        mx.eval(step(*to_device(next(batches)), mx.array(0.0)), weights, optimizer.state)
    optimizer.reset(weights)
    say(f"ready after {time.perf_counter() - began:.0f} s")

    curve, recent, reported, exported = [], [], 0, 0
    started = last = time.perf_counter()
    for number in count():
        elapsed = time.perf_counter() - started
        progress = min(
            1.0, max(elapsed / (60 * arguments.minutes), number / arguments.steps if arguments.steps else 0.0)
        )
        if recent and (progress >= reported / REPORTS or progress >= 1):
            value, now = sum(v.item() for v in recent) / len(recent), time.perf_counter()
            speed = len(recent) * tokens_per_step / (now - last)
            entry = {
                "step": number,
                "seconds": round(elapsed, 1),
                "loss": round(value, 4),
                "tokens_per_second": round(speed),
            }
            if reported % 5 == 0 or progress >= 1:
                entry["held_out"] = held_out_losses(quantize=progress >= rounding_from)
            say(json.dumps(entry))
            curve.append(entry)
            recent, reported, last = [], int(progress * REPORTS) + 1, time.perf_counter()
            if not math.isfinite(value):
                raise SystemExit("the loss is not finite")
        if progress * EXPORTS >= exported + 1 or progress >= 1:
            export_quantized(arguments.out / "model", weights, config)
            (arguments.out / "curve.json").write_text(json.dumps(curve, indent=1) + "\n")
            exported += 1
        if progress >= 1:
            break
        rate = mx.array(learning_rate(progress, arguments.rate))
        step = rounding if progress >= rounding_from else dense
        recent.append(step(*to_device(next(batches)), rate))
        mx.async_eval(recent[-1], weights, optimizer.state)
        if len(recent) > 1:
            mx.eval(recent[-2])

    before, after = held_out_losses(quantize=False), held_out_losses(quantize=True)
    say(
        json.dumps(
            {
                "held_out_dense": before,
                "held_out_4_bit": after,
                "steps": number,
                "tokens": number * tokens_per_step,
                "seconds": round(time.perf_counter() - began),
            }
        )
    )
    log.close()
    draw(arguments.out / "curve.json", arguments.out / "curve.png")
