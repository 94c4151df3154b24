"""Scaled RoPE: the frequencies of transformers, and rotations by them in float64, in every form of RoPE."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError
from tiny_llm.ops.rope_scaling import ORIGINAL, Yarn, read_rope_scaling
from tiny_llm.positional_encoding import RoPE

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.gpu import on_a_gpu
from ..support.tolerance import to_float64

pytestmark = pytest.mark.usefixtures("on_the_cpu")

QWEN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 32768}
LLAMA = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    ORIGINAL: 8192,
}


class Float64(np.ndarray):
    """What transformers asks of a tensor of torch, which is not installed here."""

    def to(self, **_: Any) -> Float64:
        return self


FLOAT64 = SimpleNamespace(
    arange=lambda *limits, dtype=None: np.arange(*limits, dtype=np.float64).view(Float64),
    clamp=np.clip,
    where=np.where,
    int64=np.float64,
    float=np.float64,
    float32=np.float64,
)


@pytest.mark.parametrize(
    ("dims", "base", "positions", "scaling"),
    [
        (64, 1e6, 32768, QWEN),
        (128, 1e6, 40960, QWEN),
        (128, 1e6, 32768, {"type": "yarn", "factor": 4.0}),
        (128, 5e5, 2048, QWEN | {"factor": 32.0, "attention_factor": 1.25}),
        (32, 2e4, 512, QWEN | {ORIGINAL: 128, "beta_fast": 8, "beta_slow": 2}),
        (16, 1e4, 512, QWEN | {ORIGINAL: 5, "factor": 1.6}),  # fewer positions than a turn has
        (64, 1e6, 32768, QWEN | {"factor": 1}),
        (64, 5e5, 131072, LLAMA),
        (128, 5e5, 131072, LLAMA | {"factor": 8.0}),
        (16, 1e4, 512, LLAMA | {"low_freq_factor": 2, "high_freq_factor": 8, ORIGINAL: 128}),
        (128, 1e4, 16384, {"type": "linear", "factor": 4.0}),
    ],
)
def test_frequencies_and_attention_factor_are_those_of_transformers(
    dims: int, base: float, positions: int, scaling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Qwen3Config, modeling_rope_utils  # a second

    monkeypatch.setattr(modeling_rope_utils, "torch", FLOAT64, raising=False)
    config = Qwen3Config(
        head_dim=dims, rope_theta=base, max_position_embeddings=positions, rope_scaling=copy.copy(scaling)
    )
    kind = scaling.get("rope_type", scaling.get("type"))
    frequencies, attention_factor = modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind](config)
    ours = read_rope_scaling(scaling, positions, base)
    assert ours is not None
    np.testing.assert_allclose(ours.frequencies(dims, base), frequencies, rtol=1e-14)
    assert ours.attention_factor == pytest.approx(attention_factor, rel=1e-14)
    longer = scaling["factor"] * scaling.get(ORIGINAL, positions)
    assert ours.context == (longer if kind == "yarn" else positions)


def test_a_config_without_scaling_has_none() -> None:
    for scaling in (None, {}, {"rope_type": "default", "rope_theta": 1e6}, {"type": None}):
        assert read_rope_scaling(scaling, 512, 1e4) is None


def rotated(x: mx.array, start: int, rope: RoPE) -> np.ndarray:
    """x [N, S, H, D] in float64."""
    yarn, half = rope.scaling, rope.dims // 2
    assert yarn is not None
    positions = start + np.arange(x.shape[1])
    angle = positions[:, None, None] * np.array(yarn.frequencies(rope.dims, rope.base))
    cos, sin = np.cos(angle) * yarn.attention_factor, np.sin(angle) * yarn.attention_factor
    wide = to_float64(x)
    pairs = (np.s_[..., ::2], np.s_[..., 1::2])
    if not rope.traditional:
        pairs = (np.s_[..., :half], np.s_[..., half:])
    real, imaginary = wide[pairs[0]], wide[pairs[1]]
    result = np.empty_like(wide)
    result[pairs[0]] = real * cos - imaginary * sin
    result[pairs[1]] = imaginary * cos + real * sin
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("start", [0, 700, 131067])
def test_every_form_rotates_by_these_frequencies(dtype: mx.Dtype, traditional: bool, start: int) -> None:
    yarn = read_rope_scaling(QWEN, 40960, 1e6)
    assert yarn is not None
    rope = RoPE(64, yarn.context, 1e6, traditional, scaling=yarn)
    x = normal(2, 5, 3, 64, dtype=dtype, seed=1)
    expected = rotated(x, start, rope)
    span = slice(start, start + 5)
    size = 1.5 * np.abs(to_float64(x)).max()
    rounding = {mx.float32: 2**-21, mx.float16: 2**-10, mx.bfloat16: 2**-7}[dtype] * size
    for form in (rope(x, span), rope.by_table(x, start), rope.heads_first(x, start).swapaxes(1, 2)):
        assert form.dtype == dtype
        assert np.abs(to_float64(form) - expected).max() <= rounding
    with on_a_gpu():
        on_gpu = rope(x, span)
        mx.eval(on_gpu)
    # MLX has the angles in float32; the factor is one more rounding.
    angles = 0 if dtype == mx.float32 else 3 * 2**-24 * (start + 5) * size
    assert np.abs(to_float64(on_gpu) - expected).max() <= 2 * rounding + angles


def test_tables_of_another_scaling_are_others() -> None:
    yarn = Yarn(4.0, 128, 1.1)
    plain, scaled = RoPE(64, 512), RoPE(64, 512, scaling=yarn)
    assert scaled.table(0, 9) is RoPE(64, 512, scaling=Yarn(4.0, 128, 1.1)).table(0, 9)
    assert copy.deepcopy(scaled).table(0, 9) is scaled.table(0, 9)
    assert not mx.array_equal(plain.table(0, 9).cos, scaled.table(0, 9).cos)


def test_a_base_that_has_no_frequencies_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^rope_theta: got 1\.0, expected a number above 1 with yarn"):
        read_rope_scaling(QWEN, 512, 1.0)
