"""Keys and values of all layers in pages: arrays that are written in place."""

from collections.abc import Sequence

import mlx.core as mx

from ..checks.types import check_size
from ..errors import ArgumentError
from ..ops.slots import store_kvcache
from ..runtime.extension import cpu_kernels


class PagedStorage:
    """For each layer, keys and values [num_pages, kv_heads, page_size, head_dim] in the type of activations.

    A step reads `keys[layer]` and `values[layer]`, writes new tokens into them, and stores the result here.
    """

    def __init__(
        self, layers: int, num_pages: int, kv_heads: int, page_size: int, head_dim: int, dtype: mx.Dtype
    ):
        sizes = {
            "layers": layers,
            "num_pages": num_pages,
            "kv_heads": kv_heads,
            "page_size": page_size,
            "head_dim": head_dim,
        }
        for name, size in sizes.items():
            check_size("PagedStorage", name, size)
        self.num_pages, self.page_size = num_pages, page_size
        shape = (num_pages, kv_heads, page_size, head_dim)
        self.keys = [new_pages(shape, dtype) for _ in range(layers)]
        self.values = [new_pages(shape, dtype) for _ in range(layers)]
        mx.eval(self.keys, self.values)

    @staticmethod
    def page_bytes(layers: int, kv_heads: int, page_size: int, head_dim: int, dtype: mx.Dtype) -> int:
        """The memory of one page of all layers."""
        return 2 * layers * kv_heads * page_size * head_dim * dtype.size

    def grow(self, num_pages: int) -> None:
        """Make more pages, layer by layer: only one array is in memory twice at a time."""
        for arrays in (self.keys, self.values):
            for layer, old in enumerate(arrays):
                grown = new_pages((num_pages, *old.shape[1:]), old.dtype)
                grown[: self.num_pages] = old
                arrays[layer] = grown
                del grown
                mx.eval(arrays[layer])
        self.num_pages = num_pages

    def check_separate(self) -> None:
        """ArgumentError where keys and values of a layer are one array, to which both would be written."""
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            if keys is values:
                raise ArgumentError(
                    "PagedStorage", f"values[{layer}]", f"keys[{layer}]", "an array of its own"
                )

    def copy_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Copy the tokens of page `source` to page `target`, for each pair, in all layers."""
        if not pages:
            return
        sources = mx.array([source for source, _ in pages])
        slots = mx.array([target * self.page_size + t for _, target in pages for t in range(self.page_size)])
        for layer in range(len(self.keys)):
            keys, values = self.keys[layer], self.values[layer]
            key, value = (_rows(stored[sources]) for stored in (keys, values))
            self.write(layer, key, value, slots)

    def write(self, layer: int, key: mx.array, value: mx.array, slots: mx.array) -> None:
        """Write key and value [T, kv_heads, head_dim] to their slots, counted over all pages."""
        self.keys[layer], self.values[layer] = write_slots(
            self.keys[layer], self.values[layer], key, value, slots
        )


def new_pages(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """Zeros of this shape. On the CPU they are written at once, to huge pages where the system has them."""
    native = cpu_kernels(dtype)
    zeros: mx.array = mx.zeros(shape, dtype) if native is None else native.zeros(shape, dtype)
    return zeros


def write_slots(
    keys: mx.array, values: mx.array, key: mx.array, value: mx.array, slots: mx.array
) -> tuple[mx.array, mx.array]:
    """Pages [P, H, page_size, D] with key and value [T, H, D] in their slots, counted over all pages.

    A kernel writes to the memory of the given pages. MLX does so only where nothing else holds them; else it
    copies them.
    """
    if cpu_kernels(keys.dtype) is not None:
        return store_kvcache(key, value, keys, values, slots, layout="PHSE")
    pages, offsets = slots // keys.shape[2], slots % keys.shape[2]
    keys[pages, :, offsets] = key
    values[pages, :, offsets] = value
    return keys, values


def _rows(pages: mx.array) -> mx.array:
    """[n, kv_heads, page_size, head_dim] -> the tokens in order, [n * page_size, kv_heads, head_dim]."""
    return mx.flatten(pages.swapaxes(1, 2), 0, 1)
