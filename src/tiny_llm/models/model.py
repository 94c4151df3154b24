"""The decoder: from token ids to the logits of the next token."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import Any, ClassVar

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..cache.batching import BatchingKvCache
from ..cache.full import TinyKvFullCache
from ..cache.stacked import Columns, StackedKvCache
from ..checks.arrays import check_float_dtype
from ..checks.types import check_attributes
from ..errors import ArgumentError
from ..layer_norm import RMSNorm
from ..ops.rope_scaling import RopeScaling, read_rope_scaling
from ..runtime.gpu import computes_on_gpu
from ..runtime.ranks import Ranks
from .cpu_block import is_fused
from .gpu_block import fills_memory, gpu_weights, run_on_gpu
from .joined_weights import join_layer
from .layers import TransformerBlock
from .ops import Ops
from .qkv import Offset, row_offsets
from .sharded import JoinedWeights, ShardedEmbedding, SummedWeights
from .throttle import throttled
from .weights import Weights, eval_weights, multiply, token_table

# On the CPU, MLX blocks the caller when about fifty operations are in flight.
MAX_BLOCKS_AHEAD = 40


class Transformer(ABC):
    """Embedding, blocks, norm, and the map to logits, made from a checkpoint loaded by mlx-lm or `load`.

    `dtype` is the type of all activations; None is the type that the family was published in. `ops` are those
    of the blocks; None is those of the class. Of the `block_options`, a block gets those that it has.
    """

    ops: Ops
    block: ClassVar[type[TransformerBlock]]
    default_dtype: ClassVar[mx.Dtype]

    def __init__(self, mlx_model: Any, dtype: mx.Dtype | None, ops: Ops | None = None, **block_options: Any):
        name = type(self).__name__
        self.ops = ops or type(self).ops
        offered = {**block_options, "ops": self.ops}
        options = {each.name: offered[each.name] for each in fields(self.block) if each.name in offered}
        check_attributes(name, "mlx_model", mlx_model, ("args", "model"), "the mlx_model of a checkpoint")
        args = mlx_model.args
        dtype = self.default_dtype if dtype is None else dtype
        check_float_dtype(name, "dtype", dtype)
        self.rope_scaling = scaling = _rope_scaling(name, args)
        self.max_seq_len: int = args.max_position_embeddings if scaling is None else scaling.context
        self.mlx_model = mlx_model
        self.precision = dtype
        self.num_hidden_layers: int = args.num_hidden_layers
        self.hidden_size: int = args.hidden_size
        self.vocab_size: int = args.vocab_size
        body = mlx_model.model
        self.ranks: Ranks | None = getattr(mlx_model, "ranks", None)
        self.embedding, self.w_lm_head = self._make_ends(args.tie_word_embeddings)
        self.layers_inner = [self._make_block(layer, options) for layer in body.layers]
        self.norm = RMSNorm(self.hidden_size, body.norm.weight, args.rms_norm_eps)
        eval_weights([getattr(self.embedding, "weight", None), body.norm.weight, self.w_lm_head])
        if len(self.layers_inner) != self.num_hidden_layers:
            raise ArgumentError(
                name, "layers", len(self.layers_inner), f"num_hidden_layers, {self.num_hidden_layers}"
            )

    @abstractmethod
    def block_arguments(self, layer: Any) -> dict[str, Any]:
        """The arguments of a block of this family, from a layer of the checkpoint."""

    def common_arguments(self, layer: Any) -> dict[str, Any]:
        """The arguments that the blocks of all families take."""
        args, attention, mlp = self.mlx_model.args, layer.self_attn, layer.mlp
        matrices = {
            "wq": attention.q_proj,
            "wk": attention.k_proj,
            "wv": attention.v_proj,
            "wo": attention.o_proj,
            "w_gate": mlp.gate_proj,
            "w_up": mlp.up_proj,
            "w_down": mlp.down_proj,
        }
        weights = {name: self.ops.load_weights(matrix, self.precision) for name, matrix in matrices.items()}
        summed = {}
        if self.ranks is not None and self.ranks.kind == "tensor":
            summed = {name: SummedWeights(weights[name], self.ranks) for name in ("wo", "w_down")}
        return {
            **weights,
            **summed,
            "num_attention_heads": args.num_attention_heads,
            "num_kv_heads": args.num_key_value_heads,
            "hidden_size": args.hidden_size,
            "intermediate_size": args.intermediate_size,
            "rms_norm_eps": args.rms_norm_eps,
            "w_input_layernorm": layer.input_layernorm.weight,
            "w_post_attention_layernorm": layer.post_attention_layernorm.weight,
            "max_seq_len": self.max_seq_len,
            "theta": args.rope_theta,
            "rope_scaling": self.rope_scaling,
        }

    def __call__(self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache]) -> mx.array:
        """Token ids [B, L], after the offset[b] tokens in the cache of row b -> logits [B, L, V]."""
        return self.score(self.forward(inputs, offset, cache))

    def next_logits(self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache]) -> mx.array:
        """The arguments of `__call__` -> logits [B, V] of the last token of each row.

        The map to a large vocabulary is most of the work on a prompt, so the last block and the map run for
        the last token only.
        """
        return self.score(self.forward(inputs, offset, cache, last_only=True)[:, -1])

    def forward(
        self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache], *, last_only: bool = False
    ) -> mx.array:
        """Token ids [B, L] -> output of the last block [B, L, hidden], the input of `score`.

        With `last_only`, that of the last token of each row only: [B, 1, hidden].
        """
        name = type(self).__name__
        if inputs.ndim != 2:
            raise ArgumentError(name, "inputs", inputs.shape, "(B, L)")
        if len(cache) != self.num_hidden_layers:
            raise ArgumentError(name, "cache", len(cache), f"one for each of {self.num_hidden_layers} layers")
        offsets = row_offsets(offset, rows=inputs.shape[0])
        x = self.embed(inputs)
        last_only = last_only and self.is_last_stage
        slow = last_only and any(fills_memory(block, inputs.shape[1]) for block in self.layers_inner)
        # All layers share the pages.
        with cache[-1].writing() as results, throttled() if slow else nullcontext():
            for number, (block, tokens) in enumerate(zip(self.layers_inner, cache, strict=True), start=1):
                last_of_all = last_only and number == self.num_hidden_layers
                x = block.forward(x, offsets, tokens, "causal", last_only=last_of_all)
            x = self.pass_on(x)
            results.append(x)
        return x

    def create_batch_cache(self, size: int, max_seq_len: int) -> list[TinyKvCache]:
        """One cache per layer for `size` requests in decode, each of at most `max_seq_len` tokens."""
        if computes_on_gpu() and all(block.gpu_weights is not None for block in self.layers_inner):
            columns = Columns()
            return [StackedKvCache(size, max_seq_len, columns) for _ in self.layers_inner]
        return [BatchingKvCache(size, max_seq_len) for _ in self.layers_inner]

    def starts_ahead(self, cache: Sequence[TinyKvCache]) -> bool:
        """Whether a step may be started while the previous one is being computed.

        On a GPU, if no cache waits for its tokens. On a CPU, if every block runs as one operation: these
        append to caches that a running step still reads, and they are few enough that MLX does not block the
        caller.
        """
        if computes_on_gpu():
            return all(type(layer) in (TinyKvFullCache, StackedKvCache) for layer in cache)
        few = len(self.layers_inner) <= MAX_BLOCKS_AHEAD
        return few and all(map(is_fused, self.layers_inner, cache))

    @property
    def is_last_stage(self) -> bool:
        """Whether this process computes the logits."""
        return self.ranks is None or self.ranks.is_last_stage

    def embed(self, ids: mx.array) -> mx.array:
        """Token ids [...] -> input of the first block [..., hidden], which another process may compute."""
        if self.ranks is None or self.ranks.is_first_stage:
            x: mx.array = self.embedding(ids)
            return x
        return self.ranks.receive((*ids.shape, self.hidden_size), self.precision)

    def pass_on(self, x: mx.array) -> mx.array:
        """The output of the last block, sent to the process with the next blocks if there is one."""
        return x if self.ranks is None or self.ranks.is_last_stage else self.ranks.send(x)

    def score(self, x: mx.array) -> mx.array:
        """[..., hidden] -> logits [..., V]; x where other processes have the last blocks."""
        if not self.is_last_stage:
            return x
        x = self.norm(x)
        return self.embedding.as_linear(x) if self.w_lm_head is None else multiply(x, self.w_lm_head)

    def _make_ends(self, tied: bool) -> tuple[Any, Weights | JoinedWeights | None]:
        """The embedding, and the map to logits. None: the embedding's, or another process has it."""
        ranks, tree = self.ranks, self.mlx_model

        def load(layer: Any) -> tuple[Any, Weights | JoinedWeights]:
            """The weights as embedding and as map."""
            weights = self.ops.load_weights(layer, self.precision)
            table = token_table(weights.shape[0], self.hidden_size, weights)
            if ranks is None or ranks.kind == "pipeline":
                return table, weights
            joined = JoinedWeights(weights, ranks, self.vocab_size)
            return ShardedEmbedding(joined, table), joined

        embedding = head = None
        if ranks is None or ranks.is_first_stage or (tied and self.is_last_stage):
            embedding, head = load(tree.model.embed_tokens)
        if not tied:
            head = load(tree.lm_head)[1] if self.is_last_stage else None
        elif ranks is None:
            head = None
        return embedding, head

    def _make_block(self, layer: Any, options: dict[str, Any]) -> TransformerBlock:
        joins = computes_on_gpu() and run_on_gpu in self.ops.fused_blocks
        joined = join_layer(layer) if joins else None
        arguments = self.block_arguments(layer)
        eval_weights(arguments.values())  # block by block, so that the original matrices are freed
        block = self.block(**arguments, **options)
        if joined is not None:
            block.gpu_weights = gpu_weights(block, joined, self.ops.load_weights, self.precision)
        return block


def _rope_scaling(name: str, args: Any) -> RopeScaling | None:
    try:
        scaling = getattr(args, "rope_scaling", None)
        return read_rope_scaling(scaling, args.max_position_embeddings, args.rope_theta)
    except ArgumentError as error:
        field = f"rope_scaling: {error.argument}"
        raise ArgumentError(name, field, error.got, error.expected) from error
