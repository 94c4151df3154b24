"""One step of a packed batch: new tokens of many requests in one forward pass, over pages of keys and values.

Decoding, chunks of prompts and drafts to verify are rows of the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..attention import paged_attention
from ..cache.storage import PagedStorage
from ..runtime.batch_invariance import batch_invariant
from ..runtime.extension import cpu_kernels, load_extension
from ..runtime.gpu import computes_on_gpu
from .cached_attention import attend_flash
from .cpu_block import fused_operation
from .layers import TransformerBlock
from .weights import multiply


@dataclass(frozen=True, slots=True)
class PackedRequest:
    """The rows of one request: its new tokens, the last of `context` tokens, whose pages are `pages`.

    The logits of the last `num_logits` of its rows are computed.
    """

    token_ids: Sequence[int]
    context: int
    pages: Sequence[int]
    num_logits: int = 1


class Batch:
    """The rows of one step, checked once for all layers.

    batch_invariant: the bits of a row do not depend on the other rows, nor on those of its own request.
    token_ids: all of them, where they are not computed yet; the requests then have so many others.
    """

    def __init__(
        self,
        requests: Sequence[PackedRequest],
        storage: PagedStorage,
        *,
        batch_invariant: bool = False,
        token_ids: mx.array | None = None,
    ):
        storage.check_separate()
        self.batch_invariant = batch_invariant
        self.counts = [len(request.token_ids) for request in requests]
        self.contexts = [request.context for request in requests]
        self.step: Any = load_extension().PackedStep(
            self.counts,
            self.contexts,
            [list(request.pages) for request in requests],
            page_size=storage.page_size,
            num_pages=storage.num_pages,
        )
        self.positions: list[int] = self.step.positions
        if token_ids is None:
            token_ids = mx.array([token for request in requests for token in request.token_ids])
        self.token_ids = token_ids
        rows: list[int] = []
        end = 0
        for request in requests:
            end += len(request.token_ids)
            rows += range(end - request.num_logits, end)
        self.logit_rows = rows


class PackedBlocks:
    """The native operations of a model's blocks, found once for many steps.

    A layer or a weight that is replaced later is not seen.
    """

    def __init__(self, model: Any):
        self._model = model
        self._table: Any = None  # of all layers; a longer context needs a longer one
        self._operations: list[Any] | None = None

    @property
    def found(self) -> bool:
        """Whether the last step had them: the whole step is then a few operations for MLX."""
        return self._operations is not None

    def operations(self, x: mx.array, batch: Batch) -> list[Any] | None:
        """One for each block; None if any block has none."""
        blocks = self._model.layers_inner
        table = blocks[0].self_attn.rope.table(max(batch.contexts), 0)
        if table is not self._table:
            found = [_packed_operation(block, x, batch) for block in blocks]
            self._operations = None if None in found else found
            self._table = table
        return self._operations


def has_paged_kernel(model: Any) -> bool:
    """Whether attention over pages is a kernel for this model on MLX's default device."""
    return not computes_on_gpu() and model.layers_inner[0].self_attn.ops.attend is attend_flash


def packed_logits(
    model: Any, batch: Batch, storage: PagedStorage, blocks: PackedBlocks | None = None
) -> mx.array:
    """The logits [R, V] of the rows for which the batch wants them, in order.

    Keys and values are stored when the result is evaluated. Where no logits are wanted, it is [0, hidden].
    """
    with batch_invariant(batch.batch_invariant):
        x = model.embed(batch.token_ids)[None]
        operations = (blocks or PackedBlocks(model)).operations(x, batch)
        if operations is None:
            for layer, block in enumerate(model.layers_inner):
                x = _run_block(block, x, batch, storage, layer)
        else:  # one operation for all: from one to the next MLX takes microseconds
            x, storage.keys, storage.values = load_extension().DecoderBlock.packed(
                operations, x, storage.keys, storage.values, batch.step
            )
        if not model.is_last_stage:
            sent: mx.array = model.pass_on(x)
            return sent
        if not batch.logit_rows:  # a chunk inside a prompt
            nothing: mx.array = x[0, :0]
            return nothing
        if len(batch.logit_rows) < x.shape[1]:
            x = x[:, mx.array(batch.logit_rows)]
        logits: mx.array = model.score(x[0])
        return logits


def _packed_operation(block: TransformerBlock, x: mx.array, batch: Batch) -> Any | None:
    """The native operation of a block; None if there is none."""
    if cpu_kernels(x.dtype) is None:
        return None
    fused = fused_operation(block, x.dtype, block.self_attn.rope.table(max(batch.contexts), 0))
    return None if fused is None else fused.operation


def _run_block(
    block: TransformerBlock, x: mx.array, batch: Batch, storage: PagedStorage, layer: int
) -> mx.array:
    """The output of a block [1, T, hidden], operation by operation."""
    attention = block.self_attn
    query, key, value = attention.project(x, block.input_layernorm)

    def rotate(heads: mx.array) -> mx.array:
        """[1, T, H, D] -> [T, H, D]."""
        return attention.rope.heads_first(heads.swapaxes(0, 1), batch.positions)[:, :, 0]

    storage.write(layer, rotate(key), value[0], mx.array(batch.step.slots))
    cumulative = [0]
    for count in batch.counts:
        cumulative.append(cumulative[-1] + count)
    attended = paged_attention(
        rotate(query),
        storage.keys[layer],
        storage.values[layer],
        batch.step.block_table,
        mx.array(batch.contexts),
        causal=True,
        cu_seqlens_q=cumulative,
        batch_invariant=batch.batch_invariant,
        on_fallback="allow",  # a GPU has no kernel for pages yet
    )
    x = multiply(mx.flatten(attended, 1, 2)[None], attention.wo, residual=x)
    return block.mlp(x, norm=block.post_attention_layernorm, residual=x)
