"""The gradient of attention in float64 NumPy, from its definition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import oracle
from .oracle import Array


class Gradients(NamedTuple):
    """Of query, key and value, and of the sinks if there are any."""

    dq: Array
    dk: Array
    dv: Array
    dsinks: Array | None
    # The terms of dsinks without their signs: times the rounding of the output, they bound the error of a
    # kernel that saves it, because D = rowsum(dO * O) is computed from the saved output.
    dsinks_size: Array | None = None


def gradients(q: Array, k: Array, v: Array, d_out: Array, d_lse: Array, **options: Any) -> Gradients:
    """The gradient of sum(out * d_out) + sum(lse * d_lse), where lse is finite."""
    *batch, heads, _, E = q.shape
    kv_heads, S = k.shape[-3:-1]
    group = heads // kv_heads
    scale = E**-0.5 if options.get("scale") is None else options["scale"]

    out, lse = oracle.attention(q, k, v, **options)
    # The output for values that are the unit vectors is P.
    p = oracle.attention(q, k, np.broadcast_to(np.eye(S), (*batch, kv_heads, S, S)), **options).out
    k, v = (np.repeat(x, group, axis=-3) for x in (k, v))
    delta = np.where(lse == -np.inf, 0, (d_out * out).sum(axis=-1) - d_lse)
    ds = p * (d_out @ v.swapaxes(-1, -2) - delta[..., None])
    if options.get("softcap"):
        ds = ds * (1 - np.tanh(scale * (q @ k.swapaxes(-1, -2)) / options["softcap"]) ** 2)

    def of_kv_heads(x: Array) -> Array:
        return np.asarray(x.reshape(*batch, kv_heads, group, S, E).sum(axis=-3))

    dsinks = dsinks_size = None
    if options.get("sinks") is not None:
        weight = np.exp(options["sinks"][:, None] - np.where(lse == -np.inf, np.inf, lse))
        dsinks = -(weight * delta).sum(axis=-1).reshape(-1, heads).sum(axis=0)
        size = np.abs(d_out * out).sum(axis=-1) + np.abs(d_lse)
        dsinks_size = (weight * size).sum(axis=-1).reshape(-1, heads).sum(axis=0)
    return Gradients(
        scale * (ds @ k),
        of_kv_heads(scale * (ds.swapaxes(-1, -2) @ q)),
        of_kv_heads(p.swapaxes(-1, -2) @ d_out),
        dsinks,
        dsinks_size,
    )
