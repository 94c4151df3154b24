"""A few calls find every mutant of the fast kernels; the kernels themselves pass them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import mlx.core as mx
import pytest

from metal_source import inlined

from ...support.attention.check import compare
from ...support.cases import lengths, normal, qkv, random_mask, with_nan
from ..attention.readable_cases import Case
from ..attention.run import FAST, run_decode, run_prefill
from ..harness.toolchain import BuildError
from .decode import DECODE_MUTANTS
from .fast import BITS, FAST_MUTANTS
from .mutant import NUMBERS
from .prefill import PREFILL_MUTANTS

E = 80  # the head size of the kernels that the mutants are made of


class Call(NamedTuple):
    """A call; `means` are the options for the oracle where they differ from those of the call."""

    inputs: tuple[mx.array, mx.array, mx.array]
    options: dict
    layout: str = "dense"
    means: dict | None = None


def everything(rows: int) -> Call:
    """Every option at once, a padded head size, and NaN in everything that must not be read."""
    query, key, value = qkv(L=rows, S=70, E=72)
    start, keys, real = lengths(13, 0), lengths(50, 61), lengths(rows, rows - 2)
    slot = mx.arange(70)
    free = (slot < start[:, None, None]) | (slot >= (start + keys)[:, None, None])
    padding = mx.arange(rows) >= real[:, None, None]
    inputs = with_nan(query, padding), with_nan(key, free), with_nan(value, free)
    options = {
        "mask": mx.where(random_mask(2, 4, rows, 70), normal(2, 4, rows, 70, seed=9), -mx.inf),
        "window": (30, 4),
        "softcap": 1.5,
        "sinks": normal(4) + 1,
        "scale": 0.4,
        **{"q_lens": real.astype(mx.int64), "kv_start": start.astype(mx.int64), "kv_lens": keys},
    }
    return Call(inputs, options, "one of three")


def falling() -> Call:
    """The running maximum stays that of the first tile, and the later scores underflow exp."""
    key = mx.broadcast_to(-4.0 * mx.arange(70.0)[:, None], (70, E))[None, None]
    return Call((mx.ones((1, 1, 1, E)), key, normal(1, 1, 70, E)), {"scale": 1 / E})


def window(rows: int) -> Call:
    """No row sees the first tiles, which hold NaN."""
    query, key, value = qkv(batch=(1,), L=rows, S=rows + 60, E=E)
    unread = mx.arange(rows + 60) < 32
    inputs = query, with_nan(key, unread), with_nan(value, unread)
    return Call(inputs, {"window": (5, 3)}, "heads inside")


def wide_window(rows: int) -> Call:
    """The window begins more than a tile before the first key."""
    return Call(qkv(batch=(1,), L=rows, S=rows, E=E), {"window": (50, 1)})


def hidden() -> Call:
    query, key, value = qkv(batch=(1,), heads=1, kv_heads=1, L=2, S=40, E=E)
    masked = mx.arange(40) == 7
    nan = with_nan(key, masked), with_nan(value, masked)
    return Call((query, *nan), {"mask": mx.where(masked, -mx.inf, 0.0)})


def other_values(rows: int, **options: mx.array | tuple[int, int]) -> Call:
    """Some rows see NaN or infinity, others of their tile do not."""
    query, key, value = qkv(batch=(1,), heads=2, L=rows, S=rows + 40, E=72)
    value[..., 38, 5] = mx.nan
    value[..., rows + 30, 71] = mx.inf
    value[..., -1, 70] = -mx.inf
    return Call((query, key, value), options, "one of three")


def same_rows_twice(run: Callable) -> Iterator[tuple[mx.array, mx.array]]:
    """Results of the same rows in different batches, which must have the same bits."""
    query, key, value = qkv(L=8, S=100, E=E)
    options = {"causal": True, "window": 45}
    sinks = normal(2, 4)
    whole = run(query, key, value, **options, sinks=sinks).out
    yield whole[:, :, 5:], run(query[:, :, 5:], key, value, **options, sinks=sinks).out
    yield whole[1:], run(query[1:], key[1:], value[1:], **options, sinks=sinks[1]).out


def out_of_range() -> Call:
    wrong = {"q_lens": lengths(99, -1), "kv_start": lengths(-50, 30), "kv_lens": lengths(99, -7)}
    right = {"q_lens": lengths(5, 0), "kv_start": lengths(0, 30), "kv_lens": lengths(40, 0)}
    return Call(qkv(L=5, S=40, E=E), wrong, means=right)


def calls(rows: int) -> Iterator[Call]:
    yield everything(rows)
    yield Call(qkv(batch=(1,), L=rows + 1, S=70, E=E), {})
    yield Call(qkv(L=rows, S=67, E=E), {"causal": True, "kv_start": lengths(3, 40)})
    yield Call(qkv(L=rows + 4, S=rows, E=E), {"causal": True, "sinks": normal(4)})
    yield Call(qkv(L=3, S=40, E=E), {"sinks": normal(4) + 100})
    yield Call(qkv(L=3, S=40, E=E), {"mask": mx.full((40,), -1e30)})
    yield falling()
    yield window(rows)
    yield wide_window(rows)
    yield hidden()
    yield other_values(rows, window=(-1, 2))
    yield other_values(rows, window=(3, -1))
    yield other_values(rows, mask=random_mask(1, 2, rows, rows + 40))
    yield other_values(rows, mask=random_mask(1, 2, rows, 1))._replace(layout="dense")
    masked = {"batch": 2, "kv_heads": 2, "L": 5, "S": 37, "E": E}
    for case in (
        Case("halves", mask_shape=(5, 37), mask_type="f16", **masked),
        Case("booleans", mask_shape=(5, 1), mask_type="bool", **masked),
    ):
        yield Call(case.inputs(), case.options())
    yield out_of_range()


def findings(run: Callable, rows: int) -> Iterator[str]:
    """Reports about a kernel; NUMBERS for wrong results, BITS for unequal ones."""
    try:
        for inputs, options, layout, means in calls(rows):
            out, lse, reports = run(*inputs, **options, layout=layout)
            yield from reports
            try:
                compare(out, lse, *inputs, **(means or options))
            except AssertionError:
                yield NUMBERS
        yield from (BITS for pair in same_rows_twice(run) if not mx.array_equal(*pair))
    except BuildError as error:
        yield str(error) if "threadgroup memory" in str(error) else "does not compile"


def findings_in_prefill(source: str) -> Iterator[str]:
    return findings(partial(run_prefill, source=source), 36)


def findings_in_decode(source: str) -> Iterator[str]:
    yield from findings(partial(run_decode, source=source, keys_per_split=24), 5)
    yield from findings(partial(run_decode, source=source), 5)


def some_kernels(headers: list[str], instances: list[str]) -> str:
    """The source of the fast kernels, reduced to a few of them."""

    def left_out(line: str) -> bool:
        return line.startswith("TINY_LLM_") or (
            "metal/kernels/" in line and not any(header in line for header in headers)
        )

    lines = FAST.read_text().splitlines(keepends=True)
    return inlined("".join([*(line for line in lines if not left_out(line)), *instances]))


def prefill_kernel() -> str:
    return some_kernels(["prefill.h"], [f"TINY_LLM_PREFILL(f32, float, {E}, 32)\n"])


def decode_kernels() -> str:
    kinds = {"decode_f32": "false", "decode_split_f32": "true"}
    instances = [f"TINY_LLM_DECODE({name}, float, float, {part}, {E})\n" for name, part in kinds.items()]
    return some_kernels(["decode.h", "merge.h"], [*instances, "TINY_LLM_MERGE(f32, float)\n"])


def test_the_prefill_kernel_has_no_findings():
    assert list(findings_in_prefill(prefill_kernel())) == []


def test_the_decode_kernels_have_no_findings():
    assert list(findings_in_decode(decode_kernels())) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", PREFILL_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_the_prefill_kernel_is_found(mutant):
    mutant.assert_found(findings_in_prefill(mutant.applied(prefill_kernel())))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [*FAST_MUTANTS, *DECODE_MUTANTS], ids=lambda mutant: mutant.name)
def test_a_mutant_of_the_decode_kernels_is_found(mutant):
    mutant.assert_found(findings_in_decode(mutant.applied(decode_kernels())))
