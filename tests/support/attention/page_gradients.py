"""The gradient of attention over pages in float64: of each sequence on its gathered keys, summed by slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from .gradient_oracle import gradients
from .oracle import Array


def page_gradients(
    query: Array,
    key_pages: Array,
    value_pages: Array,
    table: Array,
    contexts: list[int],
    rows: list[int],
    d_out: Array,
    d_lse: Array,
    **options: Any,
) -> list[Array]:
    """dQ [T, H_q, E], dK and dV [P, H, page, E], and dsinks if there are sinks.

    Rows rows[b] .. rows[b + 1] - 1 of query [T, H_q, E] are sequence b. A token in a page with an id outside
    0 .. P - 1 is hidden.
    """
    pages, _, page_size, _ = key_pages.shape
    total = [np.zeros(x.shape) for x in (query, key_pages, value_pages)]
    dsinks = np.zeros(query.shape[1])
    for b, n in enumerate(contexts):
        part = slice(rows[b], rows[b + 1])
        token = np.arange(max(n, 0))
        ids, slots = table[b, token // page_size], token % page_size
        present = (ids >= 0) & (ids < pages)
        at = (np.where(present, ids, 0), slots)

        def gathered(x: Array, at: Any = at, present: Array = present) -> Array:
            rows_of_tokens = x.swapaxes(1, 2)[at]  # [tokens, H, E]
            return np.where(present[:, None, None], rows_of_tokens, 0).swapaxes(0, 1)

        exact = gradients(
            query[part].swapaxes(0, 1),
            gathered(key_pages),
            gathered(value_pages),
            d_out[part].swapaxes(0, 1),
            d_lse[part].swapaxes(0, 1),
            mask=np.broadcast_to(present, (part.stop - part.start, len(token))),
            **options,
        )
        total[0][part] = exact.dq.swapaxes(0, 1)
        for pool, one in zip(total[1:], (exact.dk, exact.dv), strict=True):
            np.add.at(pool.swapaxes(1, 2), at, np.where(present[:, None, None], one.swapaxes(0, 1), 0))
        if exact.dsinks is not None:
            dsinks += exact.dsinks
    return [*total, dsinks]
