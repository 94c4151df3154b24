"""The rows of `bench threads`: the pool, steps of a model, and operations that should use all cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from benches.cases import attention, models, pages, varlen
from benches.cases.products import packed_cases
from benches.cases.rows import row_cases
from benches.harness.contestant import Case as Measurable
from benches.harness.types import DTYPES

Group = Literal["pool", "model", "large", "operations"]
GROUPS: dict[Group, str] = {
    "pool": "a parallel region without work, the same after the threads fell asleep, and a barrier",
    "model": "decode steps and prefill of qwen2-0.5b in 4 bits, and their regions by operation",
    "large": "decode steps of qwen2-7b in 4 bits, which read all of its weights from memory",
    "operations": "what is known to need many threads: the head, sampling, attention, its gradient, pages",
}
COSTS = {"region": "region", "wake": "wake-up", "barrier": "barrier"}  # names of rows, by `pool_costs`
LARGE = "random:qwen2-7b"
DECODED = 16  # tokens of a sample
OPERATIONS = (  # of `bench kernels`: the head's product, and sampling
    "bf16 4 bit 0.5b head 1 x 896 -> 151936",
    "bf16 argmax 1 row",
    "bf16 top_k 1 row",
    "bf16 logsumexp 1 row",
)
HEADS = ((2, 2), (14, 2))  # of queries and keys


@dataclass(frozen=True, slots=True)
class PoolCost:
    """One of the times of `pool_costs`."""

    key: str
    group: Group = "pool"

    @property
    def name(self) -> str:
        return COSTS[self.key]


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A decode step after a prompt, or a prefill."""

    kind: Literal["decode", "prefill"]
    prompt: int
    group: Group = "model"
    model: str = models.SMALL

    @property
    def name(self) -> str:
        what = "decode after" if self.kind == "decode" else "prefill of"
        model = "" if self.model == models.SMALL else f"{self.model.removeprefix('random:')} "
        return f"{model}{what} {self.prompt} tokens"

    @property
    def case(self) -> models.Case:
        return models.Case("", self.kind, self.model, "bfloat16", self.prompt, DECODED)


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal attention, forward or with its gradient; packed prompts; or new tokens over pages."""

    what: Literal["forward", "backward", "varlen", "paged"]
    case: attention.Case | varlen.Varlen | pages.Paged
    group: Group = "operations"

    @property
    def name(self) -> str:
        return f"{self.what} {self.case.name}"


Case = PoolCost | ModelStep | Attention | Measurable


def cases(group: Group) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    match group:
        case "pool":
            yield from map(PoolCost, COSTS)
        case "model":
            for prompt in (128, 512, 2048):
                yield ModelStep("decode", prompt)
            for prompt in (128, 512, 2048):
                yield ModelStep("prefill", prompt)
        case "large":
            yield ModelStep("decode", 128, group, LARGE)
        case "operations":
            for each in (*packed_cases(), *row_cases()):
                if each.name in OPERATIONS:
                    yield replace(each, group=group)
            yield from _attention()


def _attention() -> Iterator[Attention]:
    for dtype in DTYPES:
        for heads, kv_heads in HEADS:
            yield Attention("forward", attention.Case("f32", dtype, heads, kv_heads, 2048, 2048, 64, True))
    yield Attention("forward", attention.Case("short", "bfloat16", 14, 2, 128, 128, 64, True))
    yield Attention("forward", attention.Case("decode", "bfloat16", 14, 2, 1, 4096, 64))
    for dtype in DTYPES:
        yield Attention("backward", attention.Case("f32", dtype, 14, 2, 1024, 1024, 64, True))
    yield Attention("varlen", varlen.Varlen(varlen.MIXED, "bfloat16"))
    for heads, kv_heads, D in pages.HEADS:
        yield Attention("paged", pages.Paged(pages.CONTEXTS, 1, 16, "PHSE", heads, kv_heads, D))


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`."""
    return not isinstance(case, ModelStep) or (case.prompt <= 512 and case.model != LARGE)
