"""Random attention problems: shapes around tile edges, every option, strided inputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from ..support.cases import DTYPES, normal, qkv, random_mask

# Small lengths, some around the edges of tiles, and one that splits the keys.
LENGTHS = st.one_of(st.integers(0, 20), st.sampled_from([31, 32, 33, 63, 64, 65, 70, 127, 129, 200]))
KEY_LENGTHS = st.one_of(LENGTHS, st.sampled_from([1023, 1025, 2500]))
HEADS = st.sampled_from([(1, 1), (2, 2), (3, 1), (4, 2), (6, 2), (8, 1), (14, 2)])
HEAD_SIZES = st.one_of(st.sampled_from([1, 8, 16, 40, 64, 80, 128]), st.integers(1, 256))


class Problem(NamedTuple):
    """The arguments of one `flash_attention` call."""

    query: mx.array
    key: mx.array
    value: mx.array
    options: dict[str, Any]

    def __repr__(self) -> str:
        def text(x: Any) -> str:
            return f"{x.dtype}{x.shape}" if isinstance(x, mx.array) and x.size > 8 else repr(x)

        options = ", ".join(f"{name}={text(x)}" for name, x in self.options.items())
        return f"query={text(self.query)}, key={text(self.key)}, {options}"


def strided(draw: st.DrawFn, x: mx.array) -> mx.array:
    """The same values in another layout."""
    layout = draw(
        st.sampled_from(["packed", "sequence first", "size first", "sliced", "every second row", "reversed"])
    )
    if layout == "sequence first":
        return mx.contiguous(mx.swapaxes(x, -3, -2)).swapaxes(-3, -2)
    if layout == "size first":
        return mx.contiguous(mx.swapaxes(x, -2, -1)).swapaxes(-2, -1)
    if layout == "sliced":
        return mx.pad(x, [(0, 0)] * (x.ndim - 2) + [(1, 2), (3, 1)], constant_values=mx.nan)[..., 1:-2, 3:-1]
    if layout == "every second row":
        return mx.contiguous(mx.repeat(x, 2, axis=-2))[..., ::2, :]
    if layout == "reversed":
        return mx.contiguous(x[..., ::-1, :])[..., ::-1, :]
    return x


def mask_array(draw: st.DrawFn, batch: tuple[int, ...], heads: int, L: int, S: int, seed: int) -> mx.array:
    """Bool or float, broadcast along some axes, possibly transposed in memory."""
    full = (*batch, heads, L, S)
    shape = tuple(n if draw(st.booleans()) else 1 for n in full)[draw(st.integers(0, len(full))) :]
    keep = random_mask(*shape, keep=draw(st.sampled_from([0.1, 0.8, 1.0])), seed=seed)
    if draw(st.booleans()):
        mask = keep
    else:
        dtype = draw(st.sampled_from(DTYPES))
        mask = mx.where(keep, normal(*shape, seed=seed), -mx.inf).astype(dtype)
    if mask.ndim >= 2 and draw(st.booleans()):
        mask = mx.contiguous(mask.swapaxes(-1, -2)).swapaxes(-1, -2)
    return mask


@st.composite
def problems(draw: st.DrawFn, dtypes: tuple[mx.Dtype, ...] = DTYPES) -> Problem:
    """A legal call of `flash_attention` with at most some millions of multiply-adds."""
    batch = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 2)]))
    heads, kv_heads = draw(HEADS)
    L, S, E = draw(LENGTHS), draw(KEY_LENGTHS), draw(HEAD_SIZES)
    if L * S * E * heads * int(np.prod(batch)) > 20_000_000:
        batch, heads, kv_heads = (1,), 2, 1
    if L > 20 and S > 1000:
        L = 20
    seed = draw(st.integers(0, 1000))
    dtype = draw(st.sampled_from(dtypes))
    inputs = qkv(batch=batch, heads=heads, kv_heads=kv_heads, L=L, S=S, E=E, dtype=dtype, seed=seed)
    query, key, value = (strided(draw, x) for x in inputs)

    options: dict[str, Any] = {"causal": draw(st.booleans())}
    if draw(st.booleans()):
        options["scale"] = (
            draw(st.sampled_from([0.0, 0.1, -0.5, 1.0])) * E**-0.5
        )  # the floors hold for such scores
    if draw(st.booleans()):
        limit = st.integers(-1, 80)
        options["window"] = draw(st.one_of(st.integers(1, 80), st.tuples(limit, limit)))
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([0.3, 3.0, 30.0]))
    if draw(st.booleans()):
        options["sinks"] = 2 * normal(heads, seed=seed, dtype=draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        options["mask"] = mask_array(draw, batch, heads, L, S, seed)
    rng = np.random.default_rng(seed)
    start = np.zeros(batch, int)
    if draw(st.booleans()):
        start = rng.integers(0, S + 1, batch)
        options["kv_start"] = mx.array(start, dtype=mx.int32)
    if draw(st.booleans()):
        options["kv_lens"] = mx.array(rng.integers(0, S - start + 1, batch), dtype=mx.int64)
    if draw(st.booleans()):
        options["q_lens"] = mx.array(rng.integers(0, L + 1, batch), dtype=mx.int32)
    return Problem(query, key, value, options)
