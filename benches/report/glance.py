"""The tables of docs/benchmarks.md: a dozen rows on each machine, and where tiny-llm is level or behind."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from benches.names import BATCH, LLAMA_CPP, MLX, MLX_LM, MX_FAST, OPENVINO, PYTORCH, TINY_LLM
from benches.report.tables import Record, quantity, rate_text, seconds_text, table

Machines = dict[str, list[Record]]


@dataclass(frozen=True, slots=True)
class Headline:
    """A row of a record, and the peer to compare with."""

    what: str
    row: str
    peer: str = ""
    contestant: str = TINY_LLM


HEADLINES = (
    Headline(
        "decode, qwen2-0.5b in 4 bits, after 128 tokens", "qwen2-0.5b bf16 decode after 128 tokens", LLAMA_CPP
    ),
    Headline("the same, after 2048 tokens", "qwen2-0.5b bf16 decode after 2048 tokens", LLAMA_CPP),
    Headline("decode, qwen2-1.5b", "qwen2-1.5b bf16 decode after 128 tokens", LLAMA_CPP),
    Headline("decode, 8 sequences of qwen2-0.5b", "qwen2-0.5b bf16 decode 8 x after 128 tokens", "", BATCH),
    Headline("prefill of 512 tokens, qwen2-0.5b", "qwen2-0.5b bf16 prefill of 512 tokens", LLAMA_CPP),
    Headline("prefill of 512 tokens, qwen2-1.5b", "qwen2-1.5b bf16 prefill of 512 tokens", LLAMA_CPP),
    Headline("peak memory, 2048 tokens of qwen2-0.5b", "qwen2-0.5b bf16 peak memory, 2048 tokens"),
    Headline(
        "attention, float32, 8 heads, 4096 tokens, D=128, causal", "f32 8/8 N=4096 D=128 causal", PYTORCH
    ),
    Headline(
        "attention, bfloat16, 14/2 heads, 4096 tokens, D=64, causal", "bf16 14/2 N=4096 D=64 causal", PYTORCH
    ),
    Headline(
        "attention, bfloat16, 28/4 heads, 1 token over 32768, D=128", "bf16 28/4 L=1 S=32768 D=128", PYTORCH
    ),
    Headline("dense product, bfloat16, 512 x 3584 -> 3584", "bf16 7b 512 x 3584 -> 3584", PYTORCH),
    Headline("dense product, float32, 1 x 3584 -> 18944", "f32 7b 1 x 3584 -> 18944", PYTORCH),
)


PEERS = (LLAMA_CPP, OPENVINO, PYTORCH, MLX_LM, MLX, MX_FAST)
LEVEL = 1.05  # up to this much faster is level: about the noise of a shared machine
FEW_THREADS = 2  # on machines with more cores, a column of its own


def glance(machines: Machines, link: str) -> str:
    """A column for two threads and one for all of a machine; `link` has a place for its name."""
    columns = [
        (name, records, threads) for name, records in machines.items() for threads in _thread_counts(records)
    ]
    header = ["work", *(f"[{name}]({link.format(name)}), {threads} threads" for name, _, threads in columns)]
    body = [
        [headline.what, *(_cell(headline, records, threads) for _, records, threads in columns)]
        for headline in HEADLINES
    ]
    return table(header, body)


def behind(machines: Machines, link: str) -> str:
    """Rows where a peer is as fast or faster, by machine, threads, group and peer; the slowest first."""
    found: dict[tuple[str, int, str, str], list[float]] = defaultdict(list)
    for name, records in machines.items():
        for record in records:
            for row in record["rows"]:
                seconds = _seconds(row)
                for peer in PEERS:
                    if peer in seconds and TINY_LLM in seconds:
                        key = name, row["threads"], f"{record['benchmark']}: {row['group']}", peer
                        found[key].append(seconds[peer] / seconds[TINY_LLM])
    lines = []
    for (name, threads, group, peer), ratios in found.items():
        slow = [ratio for ratio in ratios if ratio < LEVEL]
        if slow:
            span = " to ".join(dict.fromkeys(f"{ratio:.2f}x" for ratio in (min(slow), max(slow))))
            rows = f"{len(slow)} of {len(ratios)}"
            lines.append(
                (min(slow), [f"[{name}]({link.format(name)})", str(threads), group, peer, span, rows])
            )
    lines.sort(key=lambda line: line[0])
    return table(["machine", "threads", "rows", "peer", "our speed", "of them"], [line for _, line in lines])


def _thread_counts(records: list[Record]) -> list[int]:
    counts = {int(row["threads"]) for record in records for row in record["rows"]}
    return sorted({max(counts), *counts & {FEW_THREADS}})


def _seconds(row: Record) -> dict[str, float]:
    """The times of a row by contestant; of several with a name the first."""
    return {c["name"]: c["seconds"]["median"] for c in reversed(row["contestants"]) if c["seconds"]}


def _cell(headline: Headline, records: list[Record], threads: int) -> str:
    rows = (row for record in records for row in record["rows"])
    found = [row for row in rows if (row["row"], row["threads"]) == (headline.row, threads)]
    if not found:
        return ""
    seconds = _seconds(found[0])
    if headline.contestant not in seconds:
        (target,) = found[0]["targets"]
        return quantity(target["value"], target["unit"])
    own, tokens = seconds[headline.contestant], found[0].get("tokens")
    text = rate_text(tokens / own) if tokens else seconds_text(own)
    return f"{text}, {seconds[headline.peer] / own:.1f}x" if headline.peer in seconds else text
