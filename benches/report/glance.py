"""The table of docs/benchmarks.md: a dozen rows, with a column for each machine."""

from __future__ import annotations

from dataclasses import dataclass

from benches.names import BATCH, LLAMA_CPP, PYTORCH, TINY_LLM
from benches.report.tables import Record, quantity, rate_text, seconds_text, table

Machines = dict[str, list[Record]]


@dataclass(frozen=True, slots=True)
class Headline:
    """A row of a record, with the largest number of threads, and the peer to compare with."""

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


def glance(machines: Machines, link: str) -> str:
    """`link` has a place for the name of a machine."""
    header = ["two threads", *(f"[{name}]({link.format(name)})" for name in machines)]
    body = [
        [headline.what, *(_cell(headline, records) for records in machines.values())]
        for headline in HEADLINES
    ]
    return table(header, body)


def _cell(headline: Headline, records: list[Record]) -> str:
    found = [row for record in records for row in record["rows"] if row["row"] == headline.row]
    if not found:
        return ""
    row = max(found, key=lambda each: int(each["threads"]))
    seconds = {c["name"]: c["seconds"]["median"] for c in reversed(row["contestants"]) if c["seconds"]}
    if headline.contestant not in seconds:
        (target,) = row["targets"]
        return quantity(target["value"], target["unit"])
    own = seconds[headline.contestant]
    text = rate_text(row["tokens"] / own) if row.get("tokens") else seconds_text(own)
    return f"{text}, {seconds[headline.peer] / own:.1f}x" if headline.peer in seconds else text
