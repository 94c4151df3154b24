"""Calls with every option, and the path that each must take."""

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
    """Calls of this L and S: every value of every option alone, and every pair of values of two options."""
    L, S = sizes
    plain = FastCase(L, S, heads=(6, 3))
    alone = [plain._replace(**{name: value}) for name, values in factors.items() for value in values]
    pairs = [FastCase(L, S, **row) for row in covering(factors)]
    return list(dict.fromkeys([*alone, *pairs]))


def is_readable(case: FastCase) -> bool:
    """Whether the readable kernel supports all options of the call."""
    beyond = case.softcap, case.sinks, case.lengths
    plain = case.window is None and all(option is None for option in beyond)
    return plain and case.dtype == mx.float32 and case.E <= 128


def name(case: FastCase, kernel: str) -> str:
    """The name of this kernel for the call's type and head size."""
    kind = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}[case.dtype]
    size = min(size for size in (64, 80, 96, 128, 256) if size >= case.E)
    return f"attention_{kernel}_{kind}_e{size}"


def expected_path(case: FastCase, kernel: str) -> str:
    """`kernel` is a fast kernel, or "readable": then the reference where the readable kernel cannot run."""
    if kernel == "readable":
        return "metal.flash_attention_f32_e128" if is_readable(case) else "reference"
    return kernel if kernel == "reference" else f"metal.{name(case, kernel)}"


def check(case: FastCase, kernel: str, **routing: Any) -> None:
    """The call takes the expected path, `explain` and `last_run` agree, and the result is attention."""
    extension, device = gpu.modules()
    inputs, options = case.inputs(), case.options()
    path = expected_path(case, kernel)
    arrays = [*inputs, *(option for option in options.values() if isinstance(option, mx.array))]
    mx.eval(arrays)
    stream = device.gpu_stream()
    explanation = extension.explain_attention(*inputs, **options, **routing, stream=stream)
    out, lse = extension.attention(*inputs, **options, **routing, on_fallback="allow", stream=stream)
    record = gpu.evaluate(out, lse)
    assert record.reports == [], case.name
    if path != "reference":
        copies = sum(dispatch.copies for dispatch in record.dispatches)
        assert explanation["copies_bytes"] == copies, case.name
    assert explanation["path"] == path, (case.name, explanation)
    assert extension.last_run()["path"] == path, case.name
    kernels = [path.removeprefix("metal.")] if path != "reference" else []
    if kernel == "decode_split":
        kernels.append(kernels[0].replace("decode_split", "merge").rsplit("_", 1)[0])
    assert record.kernels == kernels, case.name
    try:
        compare(out, lse, *inputs, **options)
    except AssertionError as error:
        raise AssertionError(f"{case.name}: {error}") from None
    assert not np.isnan(np.array(lse)).any(), case.name
