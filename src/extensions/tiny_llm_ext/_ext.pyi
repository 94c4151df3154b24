"""Kernels for MLX: attention, products and row operations."""

from collections.abc import Sequence
from typing import Any

import mlx.core

def attention(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    *,
    scale: float | None = None,
    mask: mlx.core.array | str | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: mlx.core.array | None = None,
    q_lens: mlx.core.array | Sequence[int] | None = None,
    kv_start: mlx.core.array | Sequence[int] | None = None,
    kv_lens: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_q: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_k: mlx.core.array | Sequence[int] | None = None,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    isa: str | None = None,
    threads: int | None = None,
    return_lse: bool = True,
    own_kernels: bool = True,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> tuple[mlx.core.array, mlx.core.array | None]:
    """
    Fused attention: the output (B..., Hq, L, E) and, if asked for, the log-sum-exp (B..., Hq, L).

    Query is (B..., Hq, L, E), key and value are (B..., Hkv, S, E). With cu_seqlens_q, sequences are
    packed: query (T_q, Hq, E), key and value (T_k, Hkv, E), log-sum-exp (T_q, Hq); cu_seqlens_k
    defaults to cu_seqlens_q. `isa` and `threads` choose the
    CPU kernels and the number of threads for this call; own_kernels=False computes as on a GPU without
    kernels of ours.
    """

def attention_reference(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    *,
    scale: float | None = None,
    mask: mlx.core.array | str | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: mlx.core.array | None = None,
    q_lens: mlx.core.array | Sequence[int] | None = None,
    kv_start: mlx.core.array | Sequence[int] | None = None,
    kv_lens: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_q: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_k: mlx.core.array | Sequence[int] | None = None,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    isa: str | None = None,
    threads: int | None = None,
    return_lse: bool = True,
    own_kernels: bool = True,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> tuple[mlx.core.array, mlx.core.array | None]:
    """
    The same from ordinary MLX operations: O(L * S) memory, derivatives of every order.
    """

def explain_attention(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    *,
    scale: float | None = None,
    mask: mlx.core.array | str | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: mlx.core.array | None = None,
    q_lens: mlx.core.array | Sequence[int] | None = None,
    kv_start: mlx.core.array | Sequence[int] | None = None,
    kv_lens: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_q: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_k: mlx.core.array | Sequence[int] | None = None,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    isa: str | None = None,
    threads: int | None = None,
    return_lse: bool = True,
    own_kernels: bool = True,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> dict[str, Any]:
    """What `attention` would do with these arguments. Runs nothing."""

def explain_attention_reference(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    *,
    scale: float | None = None,
    mask: mlx.core.array | str | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: mlx.core.array | None = None,
    q_lens: mlx.core.array | Sequence[int] | None = None,
    kv_start: mlx.core.array | Sequence[int] | None = None,
    kv_lens: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_q: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_k: mlx.core.array | Sequence[int] | None = None,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    isa: str | None = None,
    threads: int | None = None,
    return_lse: bool = True,
    own_kernels: bool = True,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> dict[str, Any]:
    """
    What `attention_reference` would do with these arguments. Runs nothing.
    """

def flash_attention(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    mask: mlx.core.array | None = None,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    num_kv_heads: int,
    num_heads: int,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    The course's flat form, float32 only: query (N, L, E), key and value (N_kv, S, E), mask (N, L, S) or None.
    """

def explain_flash_attention(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    mask: mlx.core.array | None = None,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    num_kv_heads: int,
    num_heads: int,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> dict[str, Any]:
    """
    What `flash_attention` would do with these arguments. Runs nothing. Memory layouts count as dense.
    """

def paged_attention(
    query: mlx.core.array,
    key_pages: mlx.core.array,
    value_pages: mlx.core.array,
    block_table: mlx.core.array,
    context_lens: mlx.core.array,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    num_kv_heads: int,
    num_heads: int,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    Attention over keys and values in pages, the course's flat form: query (B * num_heads, L, E) and
    pages (P, num_kv_heads, page, E) float32, block_table (B, pages) and context_lens (B,) int32.

    Token t of sequence b is in slot t % page of page block_table[b][t // page]; an id outside
    0 .. P - 1 is an absent page, whose tokens are hidden.
    """

def attention_in_pages(
    query: mlx.core.array,
    key_pages: mlx.core.array,
    value_pages: mlx.core.array,
    block_table: mlx.core.array,
    context_lens: mlx.core.array,
    *,
    layout: str = "PHSE",
    scale: float | None = None,
    mask: mlx.core.array | str | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: mlx.core.array | None = None,
    q_lens: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_q: mlx.core.array | Sequence[int] | None = None,
    hide_absent: bool = False,
    ids_checked: bool = False,
    return_lse: bool = False,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    isa: str | None = None,
    threads: int | None = None,
    own_kernels: bool = True,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> tuple[mlx.core.array, mlx.core.array | None]:
    """
    The same for pages of one type, float32, float16 or bfloat16, which is that of query and result; and
    the log-sum-exp, if asked for. Sums are float32, and the pages are not copied.

    Query is (B, Hq, L, E), or (T_q, Hq, E) with cu_seqlens_q; layout is 'PHSE' or 'PSHE', by the axes of
    pages: P pages, H heads, S slots. An id of no page where a query would see its tokens is an error.
    With hide_absent, the tokens are hidden; with ids_checked, the caller looked for such ids. The other
    options are those of `attention`.
    """

def explain_attention_in_pages(
    query: mlx.core.array,
    key_pages: mlx.core.array,
    value_pages: mlx.core.array,
    block_table: mlx.core.array,
    context_lens: mlx.core.array,
    *,
    layout: str = "PHSE",
    scale: float | None = None,
    mask: mlx.core.array | str | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: mlx.core.array | None = None,
    q_lens: mlx.core.array | Sequence[int] | None = None,
    cu_seqlens_q: mlx.core.array | Sequence[int] | None = None,
    hide_absent: bool = False,
    ids_checked: bool = False,
    return_lse: bool = False,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    isa: str | None = None,
    threads: int | None = None,
    own_kernels: bool = True,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> dict[str, Any]:
    """What `attention_in_pages` would do with these arguments. Runs nothing."""

def store_kvcache(
    key: mlx.core.array,
    value: mlx.core.array,
    k_cache: mlx.core.array,
    v_cache: mlx.core.array,
    slot_mapping: mlx.core.array,
    *,
    layout: str = "PSHE",
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> tuple[mlx.core.array, mlx.core.array]:
    """
    Write key and value (T, Hkv, E) to their slots of the pages, in place; returns the pages.

    Pages are (P, page, Hkv, E), or (P, Hkv, page, E) with layout='PHSE'. Token t goes to slot
    slot_mapping[t] % page of page slot_mapping[t] // page; -1 skips it. The arrays given share the
    memory of the result.
    """

def axpby(
    x: mlx.core.array,
    y: mlx.core.array,
    alpha: float,
    beta: float,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """alpha x + beta y, broadcasting, in the wider dtype of x and y."""

def linear(
    x: mlx.core.array,
    w: mlx.core.array,
    bias: mlx.core.array | None = None,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    x (..., K) times the transposed w (N, K), plus bias (N,) if there is one: (..., N).

    All have one dtype: float32, float16 or bfloat16. Sums are float32, bias included, and rounded once.

    There are two orders of summation, three on AMX. The number of rows and the processor decide which
    one is taken, and so the last bits of a row; nothing else does.
    """

def quantized_matmul(
    scales: mlx.core.array,
    biases: mlx.core.array,
    group_size: int,
    bits: int,
    a: mlx.core.array,
    b: mlx.core.array,
    transpose_b: bool = False,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    a (M, K) times the transposed quantized weights b (N, K * bits / 32) uint32: (M, N) like a.

    Scales and biases are (N, K / group_size) of the dtype of a: a weight is q * scale + bias. Bits are
    4 or 8, the group size 32, 64 or 128, and transpose_b must be True. Sums are float32.

    Up to 8 rows (16 with AVX-512, 32 on AMX) are multiplied with exact weights. More bfloat16
    rows are multiplied with weights rounded to bfloat16, where the processor has bfloat16
    products. On AMX, 1 to 5 rows (float32: 1 to 8) become int8 digits, exact to 23 bits of the
    largest element of a quantization group, and more rows of float32 and float16 are split into
    two or three bfloat16 parts, exactly.

    Outliers, at most K / 64 elements of a row (from 4 to 64) that are hundreds of times larger than
    the others, are multiplied one by one, with weights in float32, where weights are exact as above:
    with weights of zero they leave no error. Infinities are outliers; a row with more of them than
    that is NaN. On AMX this holds for any number of rows of float32 and float16.

    The order of summation of a row, and so its last bits, depends on the number of rows and on no
    other row. Numbers of rows with one order:

    - AMX, bfloat16: 1-2, 3-5, 6-32, more
    - AMX, float16: 1-2, 3-5, more
    - AMX, float32: 1-2, 3-5, 6-8, more
    - AVX-512 BF16, bfloat16: 1-2, 3-16, more
    - AVX-512: 1-2, 3-16, more
    - other instruction sets: 1-2, 3-8, more
    """

def quantized_linear(
    x: mlx.core.array,
    matrices: Sequence[tuple[mlx.core.array, mlx.core.array, mlx.core.array]],
    group_size: int,
    bits: int,
    *,
    bias: Sequence[mlx.core.array] | None = None,
    norm: tuple[mlx.core.array, float] | None = None,
    residual: mlx.core.array | None = None,
    gated: bool = False,
    split: int | None = None,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> list[mlx.core.array]:
    """
    x (..., K) times several quantized matrices: a list of arrays (..., N) in the dtype of x.

    A matrix is (weight, scales, biases) as in `quantized_matmul`; all have the same group size and
    bits, and one bias (N,) each, or none has. With gated there are two matrices of one shape and
    one result, silu(first) * second. A residual (..., N) is added to a single result. With a split
    the results are (..., N / split, split).

    A norm (weight, eps) is applied to x first, as by `rms_norm`.
    """

def rms_norm(
    x: mlx.core.array,
    weight: mlx.core.array,
    eps: float,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    x (..., K) / sqrt(mean of x^2 along the last axis + eps) * weight (K,).
    """

def rope(
    x: mlx.core.array,
    cos: mlx.core.array,
    sin: mlx.core.array,
    offset: int | Sequence[int] | mlx.core.array,
    *,
    traditional: bool = False,
    heads_first: bool = False,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> mlx.core.array:
    """
    x (N, S, H, D) with pairs of its last axis rotated, at the positions offset .. offset + S - 1. Row p of
    cos and sin (P, D / 2) float32 has the cosines and sines of the angles of position p.

    The offset is one number, or one for each of the N rows. Pair i is (2i, 2i + 1) if traditional, else
    (i, i + D / 2). With heads_first the result is (N, H, S, D).
    """

def silu_multiply(
    gate: mlx.core.array,
    up: mlx.core.array,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """silu(gate) * up for two arrays of one shape and dtype."""

def quantized_rows(
    ids: mlx.core.array,
    weight: mlx.core.array,
    scales: mlx.core.array,
    biases: mlx.core.array,
    group_size: int,
    bits: int,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    The rows ids (...) of the quantized weights (V, K * bits / 32) uint32: (..., K) in the dtype of
    scales and biases (V, K / group_size). An id outside 0 .. V - 1 gives a row of NaN.
    """

def argmax(
    x: mlx.core.array,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    The index (...) uint32 of the largest number along the last axis of x (..., V), the first of equal ones.
    NaN counts as larger than any number, as in mx.argmax on the CPU.
    """

def categorical(
    logits: mlx.core.array,
    uniform: mlx.core.array,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """
    An index (...) uint32 for each row of logits (..., V): the first one at which the running sum of
    e^x / sum e^x exceeds the row's number in uniform (...), float32 in [0, 1).
    """

def top_k(
    x: mlx.core.array,
    k: int,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> tuple[mlx.core.array, mlx.core.array]:
    """
    The k largest numbers along the last axis of x (..., V) and their indices uint32: (..., k) each, in
    descending order, equal ones by index. NaN comes last.
    """

def logsumexp(
    x: mlx.core.array,
    *,
    stream: mlx.core.Stream
    | mlx.core.ThreadLocalStream
    | mlx.core.Device
    | mlx.core.DeviceType
    | None = None,
) -> mlx.core.array:
    """log(sum(e^x)) along the last axis of x (..., V): (...) float32."""

def cached_attention(
    query: mlx.core.array,
    key: mlx.core.array,
    value: mlx.core.array,
    caches: Sequence[
        tuple[mlx.core.array, mlx.core.array, int] | tuple[mlx.core.array, mlx.core.array, int, bool] | None
    ],
    cos: mlx.core.array,
    sin: mlx.core.array,
    offset: int | Sequence[int],
    *,
    scale: float | None = None,
    traditional: bool = False,
    stream: mlx.core.Stream | mlx.core.Device | None = None,
) -> tuple[mlx.core.array, list[tuple[mlx.core.array, mlx.core.array]]]:
    """
    Causal attention of new tokens over caches: (B, L, Hq * E), and the caches with the new tokens.

    Query is (B, L, Hq, E), key and value are (B, L, Hkv, E). Query and key are rotated as by `rope`, at
    the positions offset .. offset + L - 1; `offset` is one number, or one per row. The caches are in the
    order of the rows: (keys, values, length), arrays (N, Hkv, capacity, E) with `length` valid tokens,
    is the cache of the next N rows; None is a row without a cache, whose result is 0. The new caches have
    L more tokens, in the same memory if no other array or running operation uses it.

    (keys, values, length, True): keys and values were returned by this function or by a `DecoderBlock`,
    with `length` tokens or more, and the caller has held them since. Memory after the tokens that no step
    uses is then written even if other arrays share it, so a step may start while the previous one is
    computed.
    """

class DecoderBlock:
    """
    A decoder block on quantized weights, for any number of new tokens: attention with caches and
    feed-forward as one operation. Bitwise equal to its operations run one by one.
    """

    @staticmethod
    def of(
        arrays: Sequence[mlx.core.array],
        formats: Sequence[tuple[int, int]],
        biased: bool,
        eps: Sequence[float],
        head_size: int,
        traditional: bool,
    ) -> DecoderBlock | None:
        """
        The block made of these arrays; None if one of them is being traced.

        Weight, scales and biases of seven matrices, as in `quantized_matmul`: query, key, value, output,
        gate, up, down; if biased, the biases of query, key and value; the weights of the norms before
        attention and before feed-forward, and optionally those of query and key heads; cosine and sine,
        as in `rope`. Formats are (group size, bits) of heads, output, gate with up, and down. There is
        an eps for each norm. The block keeps the arrays as they are now.
        """

    def holds(self, arrays: list[mlx.core.array]) -> bool:
        """Whether the block was made from these arrays, unchanged since then."""

    def __call__(
        self,
        x: mlx.core.array,
        caches: Sequence[
            tuple[mlx.core.array, mlx.core.array, int]
            | tuple[mlx.core.array, mlx.core.array, int, bool]
            | None
        ],
        offset: int | Sequence[int],
        *,
        stream: mlx.core.Stream | mlx.core.Device | None = None,
    ) -> tuple[mlx.core.array, list[tuple[mlx.core.array, mlx.core.array]]]:
        """
        x (B, L, K) through the block: a result like x, and the caches with the new tokens.

        Caches and offset are those of `cached_attention`.
        """

    @staticmethod
    def packed(
        blocks: Sequence[DecoderBlock],
        x: mlx.core.array,
        key_pages: Sequence[mlx.core.array],
        value_pages: Sequence[mlx.core.array],
        step: PackedStep,
        *,
        stream: mlx.core.Stream | mlx.core.Device | None = None,
    ) -> tuple[mlx.core.array, list[mlx.core.array], list[mlx.core.array]]:
        """
        x (1, T, K), the rows of a step, through the blocks: a result like x, key pages, value pages.

        Each block has pages (P, H, page, E), which are written in place, as by `store_kvcache`.
        """

class PackedStep:
    """
    The new tokens of many sequences, whose keys and values are in pages: the rows of one forward pass.
    Checked here, once for all layers.
    """

    def __init__(
        self,
        new_tokens: Sequence[int],
        context_lens: Sequence[int],
        block_tables: Sequence[Sequence[int]],
        *,
        page_size: int,
        num_pages: int,
    ) -> None:
        """
        Sequence b has new_tokens[b] rows, the last of its context_lens[b] tokens. Token t is in slot
        t % page_size of page block_tables[b][t // page_size], one of 0 .. num_pages - 1.
        """

    @property
    def rows(self) -> int:
        """The number of new tokens."""

    @property
    def positions(self) -> list[int]:
        """The position of each row in its sequence."""

    @property
    def slots(self) -> list[int]:
        """The slot of each row, counted over all pages."""

    @property
    def block_table(self) -> mlx.core.array:
        """int32 (B, pages), padded with -1."""

def start_region_log() -> None:
    """
    From now on, keep what each parallel region of CPU kernels costs, in all threads. For measurements.
    """

def end_region_log() -> list[dict[str, Any]]:
    """
    End the log and return its regions in the order of their ends, as dictionaries: operation, items, threads
    (that were offered items), begin and end, busy (time within items, of all threads together) and longest
    (of the busiest thread), in nanoseconds. With 0 items: a whole operation with all of its regions.
    """

def pool_costs(threads: int) -> dict[str, float]:
    """
    Seconds, as medians, of a parallel region without work in which every thread takes part; of the same after
    the threads fell asleep ('wake'); and of a barrier within a region.
    """

def zeros(shape: Sequence[int], dtype: mlx.core.Dtype) -> mlx.core.array:
    """
    Zeros for memory that stays, written by all threads, in huge pages where Linux provides them.
    """

class WeightMemory:
    """
    One allocation for arrays of these sizes in bytes, in huge pages where Linux provides them. Each array
    is aligned to a cache line.
    """

    def __init__(self, sizes: Sequence[int]) -> None: ...
    def copy(self, array: mlx.core.array) -> mlx.core.array:
        """The next array, a copy of this one."""

    def read(self, file: int, begin: int, shape: Sequence[int], dtype: mlx.core.Dtype) -> mlx.core.array:
        """
        The next array, read from an open file (its descriptor) from byte `begin` on.
        """

def last_run() -> dict[str, Any]:
    """
    Counters of the latest attention in this process. A graph of MLX operations counts when it is built. Of a
    gradient tiles_visited is that of the pass for dQ, key_tiles_visited that of dK and dV.
    """

def support() -> list[dict[str, Any]]:
    """The cases that have a fused kernel, one row each."""

def tile_counts(
    L: int, S: int, row_tile: int, key_tile: int, *, left: int = -1, right: int = -1, group: int = 1
) -> tuple[int, int]:
    """
    Score tiles of one KV head that a kernel visits, and all of them. left, right: window, -1 for no limit.
    """

def cpu_isa() -> str:
    """The CPU instruction set in use."""

def cpu_isas() -> list[str]:
    """The CPU instruction sets of this build and machine, best first."""

def set_batch_invariant(on: bool) -> bool:
    """
    Whether operations that this thread makes from now on are batch invariant on the CPU: the bits of a row
    do not depend on the number of rows beside it. Returns what held before.
    """

def cpu_threads() -> tuple[int, int]:
    """
    The numbers of threads that CPU kernels use: for prompts, and for decoding, where operations have few
    rows.
    """

def explain_cpu_threads() -> str:
    """Why these are the numbers of threads, in a line."""

def set_cpu_threads(threads: str, argument: str = "threads") -> None:
    """
    Sets the numbers of threads of the process: '16' for prompts and decoding, or '16,8'. It acts on
    operations that are made afterwards. Errors name `argument`.
    """

def peak(isa: str, dtype: str, threads: int = 1, seconds: float = 0.2) -> float:
    """
    GFLOP/s of multiply-adds on registers alone: the peak that benchmarks compare with.
    """

def read_bandwidth(bytes: int, threads: int = 1, seconds: float = 0.2) -> float:
    """
    GB/s at which `threads` threads together read a buffer of that size. It bounds the speed of decoding.
    """

def load_library(device: mlx.core.Device | mlx.core.DeviceType, path: str) -> None:
    """
    Load the Metal kernels from this folder instead of the package. Call it before the first kernel runs.
    Does nothing in a build without Metal.
    """

mlx_version: str = "0.32.4"
