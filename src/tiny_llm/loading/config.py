"""config.json, checked: the sizes and options of a model, each within what can run here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ArgumentError, LoadError
from ..models.names import FAMILIES
from ..ops.rope_scaling import MAX_POSITIONS, ORIGINAL, Yarn, read_rope_scaling
from .files import Fields, read_object, require_file

NAME = "config.json"
# Bits of a weight in a file, and in memory: kernels have 4 and 8, which hold all numbers of fewer.
WIDTHS = {2: 4, 3: 4, 4: 4, 5: 8, 6: 8, 8: 8}
ROPES = ("rope_parameters", "rope_scaling")
GROUP_SIZES = (32, 64, 128)
MLX_DEFAULTS = {"group_size": 64, "bits": 4}


class Rope(NamedTuple):
    """`scaling` names the context of the training, which may be absent in the file."""

    theta: float
    context: int
    scaling: Mapping[str, Any] | None


def read_rope(raw: Fields) -> Rope:
    """The checked fields; newer files have them in `rope_parameters`, to which users add a `rope_scaling`."""
    objects = {key: raw.object(key) for key in ROPES if raw.get(key) is not None}
    where = next((each for each in objects.values() if each.get("rope_theta") is not None), raw)
    usual = FAMILIES[raw.get("model_type")].terse and where.get("rope_theta") is None
    theta = 1e4 if usual else where.number("rope_theta", 0, 1e15)
    positions = raw.integer("max_position_embeddings", 1, MAX_POSITIONS)
    rope, found = Rope(theta, positions, None), None
    for key, given in objects.items():
        values = _with_original(raw, given)
        try:
            scaling = read_rope_scaling(values, positions, theta)
        except ArgumentError as error:
            raise LoadError(f"{raw.name}: {key}: {error.argument}: {error.reason}") from error
        if scaling is None:
            continue
        if found not in (None, scaling):
            raise raw.error(key, "the scaling of rope_parameters")
        original = {ORIGINAL: scaling.original} if isinstance(scaling, Yarn) else {}
        rope, found = Rope(theta, scaling.context, {**values, **original}), scaling
    return rope


def _with_original(raw: Fields, given: Fields) -> dict[str, Any]:
    """The fields of a scaling, whose context of the training may stand beside it, in the config."""
    beside = raw.get(ORIGINAL)
    if beside is None or given.get("rope_type", given.get("type")) in (None, "default", "linear"):
        return given.values
    if given.get(ORIGINAL, beside) != beside:
        raise given.error(ORIGINAL, f"{beside!r:.40}, as beside it")
    return {**given.values, ORIGINAL: beside}


@dataclass(frozen=True)
class Quantization:
    """The format of a quantized matrix: `bits` per weight, a scale and a bias per `group_size` weights."""

    group_size: int
    bits: int

    @property
    def in_memory(self) -> "Quantization":
        """The format that its numbers are kept in."""
        return Quantization(self.group_size, WIDTHS[self.bits])


@dataclass(frozen=True)
class ModelConfig:
    """The `args` of a checkpoint, which the models read, and the format of its files."""

    model_type: str
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int  # with the rope_scaling, so the context
    tie_word_embeddings: bool
    rope_scaling: Mapping[str, Any] | None = None
    quantization: Quantization | None = None
    # Exceptions, by the name of a matrix such as "model.layers.0.self_attn.q_proj"; None means dense.
    quantization_overrides: Mapping[str, Quantization | None] = field(default_factory=dict)
    end_tokens: tuple[int, ...] = ()

    @property
    def in_memory(self) -> "ModelConfig":
        """With the formats that matrices are kept in."""
        others = self.quantization_overrides.items()
        return replace(
            self,
            quantization=self.quantization and self.quantization.in_memory,
            quantization_overrides={name: packing and packing.in_memory for name, packing in others},
        )


def read_config(folder: Path) -> ModelConfig:
    """Read and check the config of the model in a folder."""
    advice = "give a folder in the layout of Hugging Face, with config, tokenizer and safetensors files"
    return check_config(read_object(require_file(folder, NAME, advice), NAME))


def check_config(values: dict[str, Any]) -> ModelConfig:
    """The values that the models need; LoadError for options that they do not support."""
    raw = Fields(values, NAME)
    _check_supported(raw)
    heads = raw.integer("num_attention_heads", 1, 2**10)
    alone = FAMILIES[raw.get("model_type")].terse and raw.get("num_key_value_heads") is None  # as in Llama 1
    kv_heads = heads if alone else raw.integer("num_key_value_heads", 1, heads)
    if heads % kv_heads != 0:
        raise raw.error("num_attention_heads", f"a multiple of num_key_value_heads, {kv_heads}")
    hidden = raw.integer("hidden_size", 2, 2**16)
    rope = read_rope(raw)
    context = _context(raw, rope)
    quantization, exceptions = _quantization(raw)
    return ModelConfig(
        model_type=raw.get("model_type"),
        num_hidden_layers=raw.integer("num_hidden_layers", 1, 2**10),
        hidden_size=hidden,
        intermediate_size=raw.integer("intermediate_size", 1, 2**20),
        vocab_size=raw.integer("vocab_size", 1, 2**22),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=_head_dim(raw, hidden, heads),
        rms_norm_eps=raw.number("rms_norm_eps", 0, 1),
        rope_theta=rope.theta,
        max_position_embeddings=context,
        tie_word_embeddings=_tied(raw),
        rope_scaling=rope.scaling,
        quantization=quantization,
        quantization_overrides=exceptions,
        end_tokens=raw.token_ids("eos_token_id"),
    )


def _check_supported(raw: Fields) -> None:
    raw.refuse_code("auto_map", "model_file")
    if raw.get("model_type") not in list(FAMILIES):
        raise raw.error(
            "model_type", f"{' or '.join(map(repr, FAMILIES))}: other architectures are not supported"
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise raw.error("hidden_act", "'silu'")
    if any(kind != "full_attention" for kind in raw.list("layer_types")):
        raise raw.error("layer_types", "only 'full_attention'")
    for fields in (raw, *(raw.object(key) for key in ROPES if raw.get(key) is not None)):
        if fields.get("partial_rotary_factor", 1) != 1:
            raise fields.error("partial_rotary_factor", "1: heads that turn as a whole")
    if raw.get("rope_traditional"):
        raise raw.error("rope_traditional", "false")
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key) and not (key == "attention_bias" and FAMILIES[raw.get("model_type")].qkv_bias):
            raise raw.error(key, f"false for {raw.get('model_type')}")


def _tied(raw: Fields) -> bool:
    """Llama and Mistral need not say that they have two matrices."""
    if FAMILIES[raw.get("model_type")].terse and raw.get("tie_word_embeddings") is None:
        return False
    return raw.boolean("tie_word_embeddings")


def _context(raw: Fields, rope: Rope) -> int:
    """The number of tokens in which no sliding window hides a key, so that attention to all is the same.

    Mistral's texts end there. Qwen's window is refused; without `layer_types`, its first layers have none.
    """
    context = rope.context
    if raw.get("model_type") == "mistral":
        if raw.get("sliding_window") is None:
            return context
        window = raw.integer("sliding_window", 1, MAX_POSITIONS)
        if rope.scaling is not None and window < context:
            raise raw.error("sliding_window", f"at least {context}, or null, beside rope_scaling")
        return min(context, window)
    if not raw.get("use_sliding_window") or raw.list("layer_types"):
        return context
    window, full = raw.values.get("sliding_window", 0), raw.get("max_window_layers", 0)
    if window is None or (type(window) is int and window >= context):
        return context
    if type(full) is not int or full < raw.integer("num_hidden_layers", 1, 2**10):
        raise raw.error("use_sliding_window", "false: sliding-window attention is not supported")
    return context


def _head_dim(raw: Fields, hidden: int, heads: int) -> int:
    """The size of a head: hidden_size / num_attention_heads, or the family's own."""
    shared, family = hidden // heads, raw.get("model_type")
    if not FAMILIES[family].own_head_dim or raw.get("head_dim") is None:
        if hidden % heads != 0:
            raise raw.error("hidden_size", f"a multiple of num_attention_heads, {heads}")
        if raw.get("head_dim", shared) != shared:
            raise raw.error("head_dim", f"{shared}, which is hidden_size / num_attention_heads, for {family}")
        if not 2 <= shared <= 256 or shared % 2 != 0:
            raise raw.error("hidden_size", "heads of an even size from 2 to 256")
        return shared
    size = raw.integer("head_dim", 2, 256)
    if size % 2 != 0:
        raise raw.error("head_dim", "an even number")
    return size


def _quantization(raw: Fields) -> tuple[Quantization | None, dict[str, Quantization | None]]:
    """The format of all matrices, and the exceptions."""
    key = "quantization" if raw.get("quantization") is not None else "quantization_config"
    if raw.get(key) is None:
        return None, {}
    given = raw.object(key)
    if given.get("quant_method") is not None:
        raise given.error("quant_method", "weights that MLX has quantized, or none")
    exceptions: dict[str, Quantization | None] = {
        name: None if entry is False else _format(_with_defaults(given.object(name)))
        for name, entry in given.values.items()
        if entry is False or isinstance(entry, dict)
    }
    return _format(given), exceptions


def _with_defaults(given: Fields) -> Fields:
    """An exception as MLX reads it; mixed recipes of mlx-lm leave its group size open."""
    values = {name: value for name, value in given.values.items() if value is not None}
    return Fields({**MLX_DEFAULTS, **values}, given.name)


def _format(given: Fields) -> Quantization:
    if given.get("mode", "affine") != "affine":
        raise given.error("mode", "'affine'")
    bits = given.choice("bits", tuple(WIDTHS))
    return Quantization(given.choice("group_size", GROUP_SIZES), bits)
