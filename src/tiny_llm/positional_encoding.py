"""Rotary position embedding (RoPE): the position of a token becomes an angle of rotation."""

import math
import threading
import weakref
from collections.abc import Callable
from operator import index

import mlx.core as mx

from .checks.arrays import check_floats
from .checks.types import check_int, check_number, check_size
from .errors import ArgumentError
from .ops.fused import Table, fused_operations
from .ops.rope_scaling import RopeScaling, ScaledTable

MIN_TABLE_POSITIONS = 256


class RotationTable:
    """Cosine and sine, [positions, dims / 2] float32, of the angle position * base ** (-i / (dims / 2))."""

    def __init__(self, dims: int, positions: int, base: float):
        half = dims // 2
        # Angles grow to `positions` radians, where the spacing of float32 is about 1e-3. So whole turns are
        # removed in float64, which MLX has on the CPU only, and cosine and sine are then computed in
        # float32.
        with mx.stream(mx.cpu):
            frequency = mx.power(mx.array(base, mx.float64), mx.arange(half, dtype=mx.float64) / -half)
            turns = mx.arange(positions, dtype=mx.float64)[:, None] * frequency / (2 * math.pi)
            angle = ((turns - mx.round(turns)) * (2 * math.pi)).astype(mx.float32)
            self.cos = mx.cos(angle)
            self.sin = mx.sin(angle)
            mx.eval(self.cos, self.sin)


class Rotations:
    """The rotation table of a sequence of at most `seq_len` positions, grown to powers of two as it is used.

    A full table of 262144 positions with 128 numbers would take 134 MB. Growing does not
    change earlier rows, bit for bit. Thread-safe.
    """

    def __init__(self, dims: int, seq_len: int, base: float, scaling: RopeScaling | None = None):
        self._dims = dims
        self._seq_len = seq_len
        self._base = base
        self._scaling = scaling
        self._table: Table | None = None
        self._positions = 0
        self._growing = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., "Rotations"], "Key"]:
        """Copies of a layer share the table."""
        return _shared_rotations, (self._dims, self._seq_len, self._base, self._scaling)

    def table(self, positions: int) -> Table:
        """A table of at least `positions` positions, up to `seq_len`."""
        if self._table is None or self._positions < min(positions, self._seq_len):
            with self._growing:
                self._grow(positions)
        assert self._table is not None
        return self._table

    def _grow(self, positions: int) -> None:
        size = min(max(MIN_TABLE_POSITIONS, 1 << (positions - 1).bit_length()), self._seq_len)
        if self._positions < size:  # false if another thread has grown it
            if self._scaling is None:
                self._table = RotationTable(self._dims, size, self._base)
            else:
                self._table = ScaledTable(self._dims, size, self._base, self._scaling)
            self._positions = size


# All layers of a model share a table. It is freed with the last of them.
Key = tuple[int, int, float, RopeScaling | None]
_shared: weakref.WeakValueDictionary[Key, Rotations] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def _shared_rotations(*key: *Key) -> Rotations:
    with _sharing:
        rotations = _shared.get(key)
        if rotations is None:
            rotations = _shared[key] = Rotations(*key)
        return rotations


class RoPE:
    """Rotate pairs of elements of a head vector of size `dims` by angles that grow with the position.

    Pair i is (2i, 2i + 1) if `traditional`, else (i, i + dims / 2). Positions are 0..seq_len-1. `scaling`
    changes the angles of a model whose texts are longer than those of its training.
    """

    def __init__(
        self,
        dims: int,
        seq_len: int,
        base: float = 10000,
        traditional: bool = False,
        *,
        scaling: RopeScaling | None = None,
    ):
        check_int("RoPE", "dims", dims)
        if dims <= 0 or dims % 2 != 0:
            raise ArgumentError("RoPE", "dims", dims, "a positive even number")
        check_size("RoPE", "seq_len", seq_len)
        check_number("RoPE", "base", base)
        if not 0 < base < math.inf:
            raise ArgumentError("RoPE", "base", base, "a positive number")
        self.dims = dims
        self.seq_len = seq_len
        self.base = base
        self.traditional = traditional
        self.scaling = scaling
        self._rotations = _shared_rotations(dims, seq_len, base, scaling)

    def table(self, starts: int | list[int], length: int) -> Table:
        """A table that reaches `length` positions beyond the largest of `starts`, up to `seq_len`."""
        last = max(starts, default=0) if isinstance(starts, list) else starts
        return self._rotations.table(last + length)

    def __call__(self, x: mx.array, offset: list[slice] | slice | None = None) -> mx.array:
        """Rotate `x` [N, S, H, D] with D = dims; same shape and dtype.

        `offset` gives the S positions: None is 0..S-1, a slice applies to every row, a list has a slice per
        row.
        """
        self._check(x)
        spans = self._spans(offset, rows=x.shape[0], length=x.shape[1])
        fused = fused_operations(x.dtype)
        if fused is None:
            return self._rotate(x, spans)
        starts = [span.start for span in spans] if isinstance(offset, list) else spans[0].start
        return fused.rope(x, self, starts).swapaxes(1, 2)

    def heads_first(self, x: mx.array, offset: int | list[int]) -> mx.array:
        """Rotate `x` [N, S, H, D] and return it in the layout of attention, [N, H, S, D].

        The positions of row b are offset[b] .. offset[b] + S - 1; one number applies to every row.
        """
        self._check(x)
        length = x.shape[1]
        if not self.has_positions(offset, length):
            positions = f"positions in 0..{self.seq_len - 1}"
            raise ArgumentError("RoPE", "offset", f"{offset} for {length} tokens", positions)
        fused = fused_operations(x.dtype)
        if fused is not None:
            return fused.rope(x, self, offset)
        return self.by_table(x, offset).swapaxes(1, 2)

    def by_table(self, x: mx.array, starts: int | list[int]) -> mx.array:
        """Rotate checked `x` [N, S, H, D] in the readable form; row b begins at position starts[b]."""
        length = x.shape[1]
        each = starts if isinstance(starts, list) else [starts]
        return self._rotate(x, [slice(start, start + length) for start in each])

    def has_positions(self, starts: int | list[int], length: int) -> bool:
        """Whether `length` tokens from each of `starts` on are at positions 0..seq_len-1."""
        first, last = (min(starts), max(starts)) if isinstance(starts, list) else (starts, starts)
        return first >= 0 and last + length <= self.seq_len

    def _check(self, x: mx.array) -> None:
        check_floats("RoPE", x=x)
        if x.ndim != 4 or x.shape[-1] != self.dims:
            raise ArgumentError("RoPE", "x", x.shape, f"(N, S, H, {self.dims})")

    def _rotate(self, x: mx.array, spans: list[slice]) -> mx.array:
        wide = x.astype(mx.float32)
        # [N or 1, S, 1, dims / 2], to broadcast over the heads
        table = self.table([span.start for span in spans], x.shape[1])
        cos = mx.stack([table.cos[span] for span in spans])[:, :, None]
        sin = mx.stack([table.sin[span] for span in spans])[:, :, None]

        if self.traditional:
            pairs = wide.reshape(*x.shape[:-1], self.dims // 2, 2)
            real, imaginary = pairs[..., 0], pairs[..., 1]
        else:
            real, imaginary = mx.split(wide, 2, axis=-1)
        rotated = [real * cos - imaginary * sin, imaginary * cos + real * sin]
        if self.traditional:
            result = mx.stack(rotated, axis=-1).reshape(x.shape)
        else:
            result = mx.concatenate(rotated, axis=-1)
        return result.astype(x.dtype)

    def _spans(self, offset: list[slice] | slice | None, rows: int, length: int) -> list[slice]:
        """The checked positions: one slice for all rows, or one per row."""
        if offset is None:
            offset = slice(0, length)
        if isinstance(offset, slice):
            offset = [offset]
        elif not isinstance(offset, list) or not all(isinstance(positions, slice) for positions in offset):
            raise ArgumentError("RoPE", "offset", repr(offset), "a slice, a list of slices or None")
        elif len(offset) != rows:
            raise ArgumentError("RoPE", "offset", f"{len(offset)} slices", f"one for each of {rows} rows")
        if not offset:
            raise ArgumentError("RoPE", "x", "no rows", "at least one where offset is a list")
        return [self._span(positions, length) for positions in offset]

    def _span(self, positions: slice, length: int) -> slice:
        """Check for `length` neighbours within the table: a slice beyond its end would be cut silently."""
        start = 0 if positions.start is None else positions.start
        stop = self.seq_len if positions.stop is None else positions.stop
        integers = hasattr(start, "__index__") and hasattr(stop, "__index__")
        neighbours = integers and positions.step in (None, 1) and stop - start == length
        if not neighbours or start < 0 or stop > self.seq_len:
            raise ArgumentError("RoPE", "offset", positions, f"{length} neighbours in 0..{self.seq_len - 1}")
        return slice(index(start), index(stop))
