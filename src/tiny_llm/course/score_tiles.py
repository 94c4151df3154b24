"""The scores of one attention call, cut into tiles of some query rows times some keys."""

from dataclasses import dataclass
from math import isfinite

import mlx.core as mx

from ..checks.arrays import check_floats, check_same_dtype, check_shape
from ..checks.types import check_size, check_type
from ..errors import ArgumentError
from ..ops.arguments import Window, read_scale
from ..ops.dense import check_mask


@dataclass(frozen=True)
class ScoreTiles:
    """Queries, keys and values in float32, and the cut of their scores into tiles.

    Row i sees the keys i + offset - left .. i + offset + right that the mask does not hide.
    """

    query: mx.array
    key: mx.array
    value: mx.array
    scale: float
    mask: mx.array | None
    left: int
    right: int
    query_tiles: list[slice]
    key_tiles: list[slice]
    dtype: mx.Dtype

    @staticmethod
    def of_call(
        function: str,
        query: mx.array,
        key: mx.array,
        value: mx.array,
        scale: float | mx.array | None,
        mask: mx.array | None,
        causal: bool,
        window: Window,
        tile: tuple[int, int],
    ) -> "ScoreTiles":
        """From the arguments of a call, which are checked."""
        check_floats(function, query=query, key=key, value=value)
        if query.ndim < 2:
            raise ArgumentError(function, "query", query.shape, "(..., L, E)")
        *batch, L, E = query.shape
        check_shape(function, "key", key.shape[-2:], ("S", E))
        S = key.shape[-2]
        leading = zip(key.shape[:-2], batch, strict=False)
        if key.ndim != query.ndim or any(size not in (1, wanted) for size, wanted in leading):
            raise ArgumentError(function, "key", key.shape, f"a shape that broadcasts to {(*batch, 'S', E)}")
        check_shape(function, "value", value.shape, key.shape)
        for name, array in (("key", key), ("value", value)):
            check_same_dtype(function, name, array.dtype, query.dtype, "query")
        if mask is not None:
            check_mask(function, mask, (*batch, L, S))
            mask = mx.broadcast_to(mask, (*batch, L, S))
        check_type(function, "causal", causal, bool, "True or False")
        _check_pair(function, "tile", tile, "(rows, keys)", minimum=1)
        left, right = _limits(function, window, causal, unlimited=L + S)
        number = read_scale(function, scale)
        if number is not None and not isfinite(number):
            raise ArgumentError(function, "scale", number, "a finite number")
        return ScoreTiles(
            query=query.astype(mx.float32),
            key=key.astype(mx.float32),
            value=value.astype(mx.float32),
            scale=E**-0.5 if number is None else number,
            mask=mask,
            left=left,
            right=right,
            query_tiles=_cut(L, tile[0]),
            key_tiles=_cut(S, tile[1]),
            dtype=query.dtype,
        )

    @property
    def offset(self) -> int:
        """The last query stands at the last key, whatever the lengths."""
        return self.key.shape[-2] - self.query.shape[-2]

    def sees(self, rows: slice, keys: slice) -> bool:
        """Whether causal and window show at least one of the keys to one of the rows."""
        first, last = rows.start + self.offset - self.left, rows.stop - 1 + self.offset + self.right
        return bool(keys.start <= last and keys.stop - 1 >= first)

    def scores(self, rows: slice, keys: slice) -> mx.array:
        scores = self.scale * (self.query[..., rows, :] @ self.key[..., keys, :].swapaxes(-1, -2))
        if self.mask is not None:
            tile = self.mask[..., rows, keys]
            if tile.dtype == mx.bool_:
                scores = mx.where(tile, scores, -mx.inf)
            else:  # hidden by selection: NaN + -inf would be NaN
                scores = mx.where(mx.isneginf(tile), -mx.inf, scores + tile.astype(mx.float32))
        position = mx.arange(rows.start, rows.stop)[:, None] + self.offset
        key = mx.arange(keys.start, keys.stop)
        visible = (key >= position - self.left) & (key <= position + self.right)
        return mx.where(visible, scores, -mx.inf)

    def join(self, tiles: list[tuple[mx.array, mx.array]]) -> tuple[mx.array, mx.array]:
        if not tiles:  # no query
            return self.query.astype(self.dtype), self.query[..., 0]
        out, lse = zip(*tiles, strict=True)
        return mx.concatenate(list(out), axis=-2).astype(self.dtype), mx.concatenate(list(lse), axis=-1)


def _cut(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _limits(function: str, window: Window, causal: bool, unlimited: int) -> tuple[int, int]:
    """How many keys to the left and to the right of its own a row sees."""
    if isinstance(window, tuple):
        _check_pair(function, "window", window, "(left, right)", minimum=-1)
        left, right = (unlimited if side == -1 else side for side in window)
    elif window is None:
        left, right = unlimited, unlimited
    else:
        check_size(function, "window", window)
        left, right = (window - 1, 0) if causal else (window // 2, (window - 1) // 2)
    return left, 0 if causal else right


def _check_pair(function: str, argument: str, pair: object, expected: str, minimum: int) -> None:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArgumentError(function, argument, pair, expected)
    for size in pair:
        check_size(function, argument, size, minimum=minimum)
