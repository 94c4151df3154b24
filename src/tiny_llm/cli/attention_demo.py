"""FlashAttention at a glance: the result of plain attention, sooner, without the table of all scores."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from ..attention import explain, flash_attention, scaled_dot_product_attention_grouped
from ..installation import describe_cpu

Attention = Callable[..., mx.array]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; exit code 1 when the two results differ by more than rounding."""
    options = parse(argv)
    try:
        describe_cpu()
    except (RuntimeError, ImportError, ValueError) as unusable:
        print(unusable, file=sys.stderr)
        return 1
    mx.random.seed(0)
    shape = (1, options.heads, options.tokens, options.head_dim)
    shared = (1, options.kv_heads, options.tokens, options.head_dim)
    query, key, value = (mx.random.normal(s) for s in (shape, shared, shared))
    mx.eval(query, key, value)

    flash, flash_cost = measure(flash_attention, query, key, value)
    plain, plain_cost = measure(scaled_dot_product_attention_grouped, query, key, value)
    plan = explain(flash_attention, query, key, value, mask="causal")
    report = {
        "heads": options.heads,
        "kv_heads": options.kv_heads,
        "tokens": options.tokens,
        "head_dim": options.head_dim,
        "flash": flash_cost,
        "grouped": plain_cost,
        "tiles_visited": plan.tiles_visited,
        "tiles_total": plan.tiles_total,
        "speed_up": plain_cost["seconds"] / flash_cost["seconds"],
        "largest_difference": mx.abs(flash - plain).max().item(),
    }
    print(json.dumps(report, indent=2) if options.json else as_text(report))
    return 0 if report["largest_difference"] < 1e-4 else 1


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pdm run main", description=__doc__)
    for name, default, what in (
        ("--heads", 8, "query heads"),
        ("--kv-heads", 2, "key/value heads, a divisor of --heads"),
        ("--tokens", 1024, "length of the sequence"),
        ("--head-dim", 64, "numbers per head, up to 256"),
    ):
        parser.add_argument(name, type=positive, default=default, help=f"{what} (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    if options.heads % options.kv_heads:
        parser.error(f"--kv-heads {options.kv_heads} does not divide --heads {options.heads}")
    if options.head_dim > 256:
        parser.error(f"--head-dim {options.head_dim}: the kernels take up to 256")
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {number}, expected at least 1")
    return number


def measure(attend: Attention, *inputs: mx.array) -> tuple[mx.array, dict[str, Any]]:
    """The causal result of the second of two runs, its seconds, and the bytes it took beyond its inputs."""
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
            cost_line("flash_attention", report["flash"]),
            "",
            f"{report['speed_up']:.0f} times sooner, at most {report['largest_difference']:.0e} apart.",
            "",
            f"{report['tiles_visited']} of {report['tiles_total']} tiles, queries down, keys across:",
            "",
            *causal_blocks(min(tokens, 12)),
            "",
            "█ all keys visible, no mask read   ▒ partly visible   · all in the future, skipped",
        ]
    )


def cost_line(name: str, cost: dict[str, Any]) -> str:
    return f"{name:<16}{cost['seconds'] * 1e3:>10.1f} ms{cost['bytes'] / 1e6:>10.1f} MB"


def causal_blocks(count: int) -> list[str]:
    """A square of count x count blocks, as the rows of a picture."""
    return [" ".join(" " + "█" * row + "▒" + "·" * (count - row - 1)) for row in range(count)]
