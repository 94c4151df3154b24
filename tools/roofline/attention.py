"""The resources of the attention kernels, counted from their sources."""

from __future__ import annotations

from .model import ADDRESSES, LANES, LINE, Kernel

# A layer of 32 query heads and 8 key/value heads.
HEADS, KEY_HEADS, E = 32, 8, 128
PREFILL_TOKENS, CACHED_TOKENS, SPLIT = 2048, 4096, 512


def attention_bytes(rows: int, keys: int, head_size: int, size: int) -> float:
    """Query, key, value and output, each once."""
    return (2.0 * HEADS * rows + 2 * KEY_HEADS * keys) * head_size * size


def readable() -> Kernel:
    """flash_attention_f32_e128: a SIMD group takes one row and 32 keys."""
    tokens, size = PREFILL_TOKENS, 4
    accesses = 2 * E * LANES  # a key to each lane; then a value to each lane, for each key
    columns = E // LANES
    need = {
        "arithmetic": 2 * E * LANES + E,
        "exp": 2 * LANES,
        "shuffles": (2 * 5 + LANES) * LANES,
        # The query is read once for each e: the same word for all lanes, but a full access. The output is
        # read and written for each key, and once more to rescale it.
        "threadgroup memory": (E + 2 * columns * LANES + 2 * columns) * LANES * size,
        "loads": accesses * size,
        "cache lines": E * LANES + LANES * columns,  # 32 keys are 32 lines, whichever e
    }
    tiles = HEADS * tokens * tokens / LANES
    once = attention_bytes(tokens, tokens, E, size)
    return Kernel(
        name="readable, f32",
        source_name="flash_attention_f32_e128",
        call=f"L = S = {tokens}, E = {E}",
        unit="1 row, 32 keys",
        need=need,
        units=tiles,
        operations=4.0 * HEADS * tokens * tokens * E,
        once=once,
        uncached=once + tiles / 32 * 2 * LANES * E * size,  # 32 rows share a threadgroup
        threads=1024,
        threadgroup_bytes=2 * 32 * 128 * size,
        registers=52,  # those that nvcc uses for the same source: tools/metal_on_cuda.py
    )


def prefill(name: str, size: int, head_size: int) -> Kernel:
    """prefill.h: a SIMD group takes 8 rows and a tile of keys, on matrix units."""
    tokens = PREFILL_TOKENS
    keys = 16 if head_size >= 128 else 32
    elements = 2 * keys * head_size  # of the keys and the values of a tile
    query_stays = head_size <= 128
    query = 0 if query_stays else 8 * head_size  # elements, read again for each tile
    multiply_adds = 2 * 8 * keys * head_size
    # Conversions to float32; for each run of four loaded elements, six index instructions and four selects;
    # rescaling of the output; and six instructions for a score.
    other = (elements if size < 4 else 0) + 10 / 4 * elements / 4 + 8 * head_size + 6 * 8 * keys
    need = {
        "arithmetic": multiply_adds + other,
        "exp": 8 * keys + LANES,
        "shuffles": 2 * LANES,
        "threadgroup memory": (elements + elements / 4) * 4,  # 16 bits cost as much as 32
        "loads": (elements / 4 + query) * size,
        "cache lines": (elements / 4 + query) * size / LINE,
    }
    tiles = HEADS * tokens / 8 * tokens / keys
    once = attention_bytes(tokens, tokens, head_size, size)
    return Kernel(
        name=f"prefill, {name}",
        source_name=f"attention_prefill_{name}_e{head_size}",
        call=f"L = S = {tokens}, E = {head_size}",
        unit=f"8 rows, {keys} keys",
        need=need,
        units=tiles,
        operations=4.0 * HEADS * tokens * tokens * head_size,
        once=once,
        uncached=once + tiles / 4 * elements * size,
        threads=128,
        threadgroup_bytes=keys * (head_size * size + 16) + 16,  # the tile, and a flag of each SIMD group
        registers=2 * (head_size // 8 * (2 if query_stays else 1) + keys // 8 + 1) + ADDRESSES,
    )


def decode(name: str, size: int) -> Kernel:
    """decode.h with several splits: a SIMD group takes one key of one row."""
    keys = CACHED_TOKENS
    need = {
        "arithmetic": 3 * E + (2 * E if size < 4 else 0) + 12 * LANES,
        "exp": 2 * LANES,
        "shuffles": 5 * LANES,
        "loads": 2 * E * size,
        # Each of a lane's neighbouring elements is a load of its own, which touches all lines of the row.
        "cache lines": 2 * (E / LANES) * E * size / LINE,
    }
    parts = HEADS * keys / SPLIT * (E + 2) * 4.0
    return Kernel(
        name=f"decode, {name}",
        source_name=f"attention_decode_split_{name}_e{E}",
        call=f"L = 1, S = {keys}, E = {E}, splits of {SPLIT}",
        unit="1 row, 1 key",
        need=need,
        units=HEADS * keys,
        operations=4.0 * HEADS * keys * E,
        once=attention_bytes(1, keys, E, size) + parts,
        uncached=2.0 * HEADS * keys * E * size + parts,  # each query head reads the keys of its group
        threads=256,
        threadgroup_bytes=8 * (E + 2) * 4,
        registers=2 * -(-E // LANES) + ADDRESSES,
        is_memory_bound=True,
    )


def merge() -> Kernel:
    """merge.h after that call: a SIMD group takes 32 columns of one row, and every split."""
    splits = CACHED_TOKENS // SPLIT
    need = {
        "arithmetic": 8 * splits * LANES,
        "exp": 2 * splits * LANES,
        "loads": splits * LANES * 5 * 4,  # four maxima and sums, the same for all lanes, and a part
        "cache lines": 5 * splits,
    }
    parts = HEADS * splits * (E + 2) * 4.0
    return Kernel(
        name="merge, f16",
        source_name="attention_merge_f16",
        call=f"{splits} splits, E = {E}",
        unit="32 columns",
        need=need,
        units=HEADS * E / LANES,
        operations=2.0 * HEADS * splits * E,
        once=parts + HEADS * E * 2,
        uncached=parts + HEADS * E * 2,
        threads=128,
        threadgroup_bytes=0,
        registers=4 + ADDRESSES,
        is_memory_bound=True,
    )
