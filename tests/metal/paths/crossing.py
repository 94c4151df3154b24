"""Every option on every path that a call may take: which path it must be, and calls for it."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from ...support.attention.check import compare
from ...support.cases import DTYPES
from ...support.covering import covering
from ..attention.fast_cases import OPTIONS, FastCase
from ..host import gpu

FEW = {
    "E": [64, 72],
    "dtype": DTYPES,
    "heads": [(14, 2), (21, 3), (2, 2)],
    "causal": [False, True],
    "window": [None, 7, (-1, 2)],
    "softcap": [None, 2.0],
    "sinks": [None, 0.5],
    "mask": [None, "S bool", "B,H,L,S bf16"],
    "lengths": [None, "keys", "start", "rows", "all as int64"],
    "scale": [None, -0.5],
}
MANY = {**OPTIONS, "E": [64, 72, 128], "layout": ["dense"], "order": [0]}


def cases(sizes: tuple[int, int], factors: dict[str, list[Any]]) -> list[FastCase]:
    """Calls of that L and S: every value of an option alone, and every pair of values of any two options."""
    L, S = sizes
    plain = FastCase(L, S, heads=(6, 3))
    alone = [plain._replace(**{name: value}) for name, values in factors.items() for value in values]
    pairs = [FastCase(L, S, **row) for row in covering(factors)]
    return list(dict.fromkeys([*alone, *pairs]))


def is_readable(case: FastCase) -> bool:
    """Whether the kernel to read has everything that the call asks for."""
    beyond = case.softcap, case.sinks, case.lengths
    plain = case.window is None and all(option is None for option in beyond)
    return plain and case.dtype == mx.float32 and case.E <= 128


def name(case: FastCase, kernel: str) -> str:
    """Of the kernel for its type and head size."""
    kind = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}[case.dtype]
    size = min(size for size in (64, 80, 96, 128, 256) if size >= case.E)
    return f"attention_{kernel}_{kind}_e{size}"


def expected_path(case: FastCase, kernel: str) -> str:
    """`kernel` is a fast one, or "readable": that where it can, and the reference elsewhere."""
    if kernel == "readable":
        return "metal.flash_attention_f32_e128" if is_readable(case) else "reference"
    return kernel if kernel == "reference" else f"metal.{name(case, kernel)}"


def check(case: FastCase, kernel: str, **asked: Any) -> None:
    """The call takes that path, says so before and after, and gives attention."""
    extension, device = gpu.modules()
    inputs, options = case.inputs(), case.options()
    path = expected_path(case, kernel)
    arrays = [*inputs, *(option for option in options.values() if isinstance(option, mx.array))]
    mx.eval(arrays)
    stream = device.gpu_stream()
    told = extension.explain_attention(*inputs, **options, **asked, stream=stream)
    out, lse = extension.attention(*inputs, **options, **asked, on_fallback="allow", stream=stream)
    notes = gpu.evaluate(out, lse)
    assert notes.reports == [], case.name
    if path != "reference":
        copies = sum(dispatch.copies for dispatch in notes.dispatches)
        assert told["copies_bytes"] == copies, case.name
    assert told["path"] == path, (case.name, told)
    assert extension.last_run()["path"] == path, case.name
    kernels = [path.removeprefix("metal.")] if path != "reference" else []
    if kernel == "decode_split":
        kernels.append(kernels[0].replace("decode_split", "merge").rsplit("_", 1)[0])
    assert notes.kernels == kernels, case.name
    try:
        compare(out, lse, *inputs, **options)
    except AssertionError as error:
        raise AssertionError(f"{case.name}: {error}") from None
    assert not np.isnan(np.array(lse)).any(), case.name
