"""Which part of each tensor a rank loads: some heads, columns or rows of the vocabulary, or some layers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import LoadError
from ...runtime.ranks import Ranks
from ..config import ModelConfig
from .layout import Matrix, layout, quantization_for

LAYER = re.compile(r"model\.layers\.(\d+)\.")


class Slice(NamedTuple):
    """The entries from `start` to `stop`, of `size`, of an axis of a matrix [outputs, inputs]."""

    axis: int
    start: int
    stop: int
    size: int


@dataclass(frozen=True, slots=True)
class WeightShare:
    """The part of a model in one process.

    config: with the sizes of this part. parts: what is loaded, by name; None is the whole of it.
    """

    config: ModelConfig
    parts: Mapping[str, Slice | None]

    def weights(self, config: ModelConfig) -> int:
        """The number of weights in the matrices of this part of a model; those in norms are negligible."""
        matrices = {name: part for name, part in layout(config).items() if isinstance(part, Matrix)}
        return sum(
            part.outputs * part.inputs // cut.size * (cut.stop - cut.start)
            if cut
            else part.outputs * part.inputs
            for name, cut in self.parts.items()
            if (part := matrices.get(name)) is not None
        )

    def slice_of(self, tensor: str, shape: tuple[int, ...]) -> Slice | None:
        """The part of a tensor of this shape, in which several inputs may be packed into one entry."""
        part = self.parts[tensor.rpartition(".")[0]]
        if part is None or part.axis >= len(shape):
            return None
        size = shape[part.axis]
        start, stop = (end * size // part.size for end in (part.start, part.stop))
        return Slice(part.axis, start, stop, size)


def whole_model(config: ModelConfig) -> WeightShare:
    """The share of a single process."""
    return WeightShare(config, dict.fromkeys(layout(config)))


def share_of(config: ModelConfig, ranks: Ranks | None) -> WeightShare:
    """The share of this process; LoadError if the model cannot be divided among so many."""
    if ranks is None:
        return whole_model(config)
    return _stage(config, ranks) if ranks.kind == "pipeline" else _slices(config, ranks)


def _stage(config: ModelConfig, ranks: Ranks) -> WeightShare:
    """Some layers: the last rank has the first ones, so that the logits come out at rank 0."""
    layers = config.num_hidden_layers
    if ranks.size > layers:
        raise LoadError(f"got {ranks.size} ranks, expected at most its {layers} layers")
    place = ranks.size - 1 - ranks.rank
    own = range(layers * place // ranks.size, layers * (place + 1) // ranks.size)
    unused = set()
    if not ranks.is_last_stage:
        unused.add("lm_head")
    if not ranks.is_first_stage and not (ranks.is_last_stage and config.tie_word_embeddings):
        unused.add("model.embed_tokens")
    names = [
        name
        for name in layout(config)
        if name not in unused and ((found := LAYER.match(name)) is None or int(found[1]) in own)
    ]
    return WeightShare(replace(config, num_hidden_layers=len(own)), dict.fromkeys(names))


def _slices(config: ModelConfig, ranks: Ranks) -> WeightShare:
    """A part of each matrix: of the heads, the feed-forward's inner size, and the vocabulary."""
    kv_heads, heads = head_range(config.num_attention_heads, config.num_key_value_heads, ranks)
    inner = _range(config.intermediate_size, _unit(config, "mlp.down_proj", config.intermediate_size), ranks)
    size, each = config.head_dim, -(-config.vocab_size // ranks.size)
    first, last = (min((ranks.rank + i) * each, config.vocab_size) for i in (0, 1))
    vocabulary = first, last, config.vocab_size
    if first == last:
        raise LoadError(f"got {ranks.size} ranks, too many for {config.vocab_size} tokens")
    queries = heads.start * size, heads.stop * size, config.num_attention_heads * size
    keys = kv_heads.start * size, kv_heads.stop * size, config.num_key_value_heads * size
    unit = _unit(config, "self_attn.o_proj", 1)
    if any(end % unit for end in queries[:2]):
        raise LoadError(
            f"got {ranks.size} ranks: a part of its heads has {queries[1] - queries[0]} columns, "
            f"expected a multiple of {unit}, the group size of its weights"
        )
    slices = {
        "self_attn.q_proj": Slice(0, *queries),
        "self_attn.k_proj": Slice(0, *keys),
        "self_attn.v_proj": Slice(0, *keys),
        "self_attn.o_proj": Slice(1, *queries),
        "mlp.gate_proj": Slice(0, *inner),
        "mlp.up_proj": Slice(0, *inner),
        "mlp.down_proj": Slice(1, *inner),
        "model.embed_tokens": Slice(0, *vocabulary),
        "lm_head": Slice(0, *vocabulary),
    }
    own = replace(
        config,
        num_attention_heads=len(heads),
        num_key_value_heads=len(kv_heads),
        intermediate_size=inner[1] - inner[0],
    )
    return WeightShare(own, {name: slices.get(LAYER.sub("", name)) for name in layout(config)})


def head_range(heads: int, kv_heads: int, ranks: Ranks) -> tuple[range, range]:
    """The heads of keys and values of this rank, and the query heads that use them.

    Rank 0, which chooses the number of pages, has no fewer heads of keys than another. With fewer of them
    than ranks, some ranks share one, and divide its query heads.
    """
    group, size, rank = heads // kv_heads, ranks.size, ranks.rank
    if size <= kv_heads:
        own = range(*(-(-kv_heads * (rank + i) // size) for i in (0, 1)))
        return own, range(own.start * group, own.stop * group)
    head = rank * kv_heads // size
    sharing = [each for each in range(size) if each * kv_heads // size == head]
    if len(sharing) > group:
        raise LoadError(f"got {size} ranks, expected at most its {heads} heads")
    place = sharing.index(rank)
    first, last = (group * (place + i) // len(sharing) for i in (0, 1))
    return range(head, head + 1), range(head * group + first, head * group + last)


def _range(length: int, unit: int, ranks: Ranks) -> tuple[int, int, int]:
    """From where to where the part of this rank is, in whole units, and `length`."""
    units = length // unit
    if units < ranks.size:
        raise LoadError(f"got {ranks.size} ranks, expected at most {units}, by its inner size")
    first, last = (units * (ranks.rank + i) // ranks.size * unit for i in (0, 1))
    return first, last if ranks.rank < ranks.size - 1 else length, length


def _unit(config: ModelConfig, part: str, length: int) -> int:
    """The least number of inputs that the matrices of this name can be divided at."""
    units = [1]
    for layer in range(config.num_hidden_layers):
        packing = quantization_for(config, f"model.layers.{layer}.{part}")
        units.append(1 if packing is None else packing.group_size)
    most = math.lcm(*units)
    return most if length == 1 or most > 1 else math.gcd(length, 64)
