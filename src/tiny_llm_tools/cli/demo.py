"""`tiny-llm demo`: FlashAttention gives the result of plain attention, faster, without the score matrix."""

import argparse
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from tiny_llm.attention import explain, flash_attention, scaled_dot_product_attention_grouped
from tiny_llm.cli import arguments
from tiny_llm.cli.device import check_kernels
from tiny_llm.cli.exit_codes import FAILED, Refusal
from tiny_llm.cli.output_files import print_json
from tiny_llm.cli.progress import ProgressBar
from tiny_llm.loading.weights.memory import available_bytes

DESCRIPTION = """Runs causal attention three ways: FlashAttention, MLX's own operation, and plain attention,
which keeps all scores in memory. Shows time, memory, and the tiles that FlashAttention skips."""
HEADS, KV_HEADS, TOKENS = 8, 2, 1024  # defaults
MAX_HEAD_DIM = 256
ROUNDING = 1e-4
SCORES = 3  # score matrices that plain attention holds at once

Attention = Callable[..., mx.array]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, default, what in (
        ("--heads", HEADS, "number of query heads"),
        ("--kv-heads", KV_HEADS, "number of key/value heads, a divisor of --heads"),
        ("--tokens", TOKENS, "sequence length"),
        ("--head-dim", 64, f"size of a head, at most {MAX_HEAD_DIM}"),
    ):
        parser.add_argument(
            name,
            type=arguments.integer(1),
            default=default,
            metavar="N",
            help=f"{what} (default: %(default)s)",
        )
    arguments.add_threads(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the comparison; fails if the results differ by more than rounding."""
    if options.heads % options.kv_heads:
        raise Refusal(f"--kv-heads: got {options.kv_heads}, expected a divisor of --heads {options.heads}")
    if options.head_dim > MAX_HEAD_DIM:
        raise Refusal(f"--head-dim: got {options.head_dim}, expected at most {MAX_HEAD_DIM}")
    check_memory(options)
    check_kernels()
    with ProgressBar() as progress:
        query, key, value = make_inputs(options)
        progress("flash_attention", 0, None)
        flash, flash_cost = measure(flash_attention, query, key, value)
        progress("mx.fast of MLX", 0, None)
        peer, peer_cost = measure(mlx_attention, query, key, value)
        progress("plain attention", 0, None)
        plain, plain_cost = measure(scaled_dot_product_attention_grouped, query, key, value)
        difference = mx.abs(mx.stack([peer, plain]) - flash).max().item()
    plan = explain(flash_attention, query, key, value, mask="causal")
    report = {
        "heads": options.heads,
        "kv_heads": options.kv_heads,
        "tokens": options.tokens,
        "head_dim": options.head_dim,
        "flash": flash_cost,
        "mx_fast": peer_cost,
        "grouped": plain_cost,
        "tiles_visited": plan.tiles_visited,
        "tiles_total": plan.tiles_total,
        "speed_up": plain_cost["seconds"] / flash_cost["seconds"],
        "largest_difference": difference,
    }
    print_json(report, indent=2) if options.json else print(as_text(report))
    return 0 if report["largest_difference"] < ROUNDING else FAILED


def check_memory(options: argparse.Namespace) -> None:
    """Refuse sizes for which plain attention has no memory, and name the flag that is too large."""
    free = available_bytes()
    needed = bytes_needed(options.heads, options.kv_heads, options.tokens, options.head_dim)
    if free is None or needed <= free:
        return
    # A flag is too large alone if it does not fit with the other at its default; else both together are.
    flags = {
        "--heads": (options.heads, bytes_needed(options.heads, options.kv_heads, TOKENS, options.head_dim)),
        "--tokens": (options.tokens, bytes_needed(HEADS, KV_HEADS, options.tokens, options.head_dim)),
    }
    alone = [flag for flag, (_, size) in flags.items() if size > free] or list(flags)
    given = " ".join(f"{flag} {flags[flag][0]}" for flag in alone[1:])
    raise Refusal(
        f"{alone[0]}: got {flags[alone[0]][0]}{f' with {given}' * bool(given)}: plain attention would take "
        f"{needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    )


def bytes_needed(heads: int, kv_heads: int, tokens: int, size: int) -> int:
    """Bytes of the inputs and results of attention, and of the score matrices of plain attention."""
    return 4 * tokens * (SCORES * heads * tokens + size * 2 * (heads + kv_heads))


def make_inputs(options: argparse.Namespace) -> list[mx.array]:
    """Random queries, keys and values."""
    mx.random.seed(0)
    heads = (options.heads, options.kv_heads, options.kv_heads)
    inputs = [mx.random.normal((1, count, options.tokens, options.head_dim)) for count in heads]
    mx.eval(inputs)
    return inputs


def mlx_attention(query: mx.array, key: mx.array, value: mx.array, mask: str) -> mx.array:
    """MLX's own operation, which on a CPU builds the score matrix."""
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=query.shape[-1] ** -0.5, mask=mask)


def measure(attend: Attention, *inputs: mx.array) -> tuple[mx.array, dict[str, Any]]:
    """The causal result of the second of two runs, its seconds, and the bytes it needed beyond its inputs."""
    mx.eval(attend(*inputs, mask="causal"))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    begin = time.perf_counter()
    result = attend(*inputs, mask="causal")
    mx.eval(result)
    seconds = time.perf_counter() - begin
    return result, {"seconds": seconds, "bytes": mx.get_peak_memory() - before}


def as_text(report: dict[str, Any]) -> str:
    tokens, heads, kv_heads = report["tokens"], report["heads"], report["kv_heads"]
    return "\n".join(
        [
            f"Causal attention: {tokens} tokens, {heads} query heads on {kv_heads} key/value heads "
            f"of size {report['head_dim']}",
            "",
            cost_line("plain (grouped)", report["grouped"]),
            cost_line("mx.fast of MLX", report["mx_fast"]),
            cost_line("flash_attention", report["flash"]),
            "",
            f"{report['speed_up']:.0f} times faster than plain attention; results differ by at most "
            f"{report['largest_difference']:.0e}.",
            "",
            f"{report['tiles_visited']} of {report['tiles_total']} tiles are computed; rows are queries:",
            "",
            *causal_blocks(min(tokens, 12)),
            "",
            "█ all keys visible, no mask needed   ▒ some visible   · none visible, skipped",
        ]
    )


def cost_line(name: str, cost: dict[str, Any]) -> str:
    return f"{name:<16}{cost['seconds'] * 1e3:>10.1f} ms{cost['bytes'] / 1e6:>10.1f} MB"


def causal_blocks(count: int) -> list[str]:
    """A square of count x count blocks, as the rows of a picture."""
    return [" ".join(" " + "█" * row + "▒" + "·" * (count - row - 1)) for row in range(count)]
