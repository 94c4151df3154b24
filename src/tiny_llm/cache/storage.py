"""Keys and values of all layers in pages: arrays that are allocated once and written in place."""

from collections.abc import Sequence

import mlx.core as mx

from ..checks.types import check_size
from ..ops.slots import store_kvcache


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
        self.keys = [mx.zeros(shape, dtype) for _ in range(layers)]
        self.values = [mx.zeros(shape, dtype) for _ in range(layers)]
        mx.eval(self.keys, self.values)

    @staticmethod
    def page_bytes(layers: int, kv_heads: int, page_size: int, head_dim: int, dtype: mx.Dtype) -> int:
        """The memory of one page of all layers."""
        return 2 * layers * kv_heads * page_size * head_dim * dtype.size

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
        keys, values = self.keys[layer], self.values[layer]
        if mx.default_device() == mx.cpu:
            self.keys[layer], self.values[layer] = store_kvcache(
                key, value, keys, values, slots, layout="PHSE"
            )
            return
        pages, offsets = slots // self.page_size, slots % self.page_size
        keys[pages, :, offsets] = key
        values[pages, :, offsets] = value


def _rows(pages: mx.array) -> mx.array:
    """[n, kv_heads, page_size, head_dim] -> the tokens in order, [n * page_size, kv_heads, head_dim]."""
    return mx.flatten(pages.swapaxes(1, 2), 0, 1)
