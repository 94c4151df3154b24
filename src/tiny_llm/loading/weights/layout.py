"""Which tensors a model has, in which shape and type, and whether its files have exactly these."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...errors import LoadError
from ...models.names import FAMILIES
from ..config import ModelConfig, Quantization
from .header import TensorEntry

FLOATS = ("BF16", "F16", "F32")
# Some tools save these; they follow from the config.
IGNORED = re.compile(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


class Matrix(NamedTuple):
    """A linear map or an embedding, [outputs, inputs], dense or quantized."""

    outputs: int
    inputs: int
    bias: bool = False


class Vector(NamedTuple):
    """The weights of a norm."""

    size: int


class ExpectedTensor(NamedTuple):
    """The allowed dtypes and the shape of a tensor of the model."""

    dtypes: tuple[str, ...]
    shape: tuple[int, ...]


def layout(config: ModelConfig) -> dict[str, Matrix | Vector]:
    """Every part of the model by name; the names of its tensors add ".weight", ".scales" and so on."""
    hidden, inner = config.hidden_size, config.intermediate_size
    parts: dict[str, Matrix | Vector] = {"model.embed_tokens": Matrix(config.vocab_size, hidden)}
    for i in range(config.num_hidden_layers):
        layer = _attention(config) | {
            "mlp.gate_proj": Matrix(inner, hidden),
            "mlp.up_proj": Matrix(inner, hidden),
            "mlp.down_proj": Matrix(hidden, inner),
            "input_layernorm": Vector(hidden),
            "post_attention_layernorm": Vector(hidden),
        }
        parts |= {f"model.layers.{i}.{name}": part for name, part in layer.items()}
    parts["model.norm"] = Vector(hidden)
    if not config.tie_word_embeddings:
        parts["lm_head"] = Matrix(config.vocab_size, hidden)
    return parts


def _attention(config: ModelConfig) -> dict[str, Matrix | Vector]:
    hidden, size = config.hidden_size, config.head_dim
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size
    family = FAMILIES[config.model_type]
    biased = family.qkv_bias
    parts: dict[str, Matrix | Vector] = {
        "self_attn.q_proj": Matrix(queries, hidden, biased),
        "self_attn.k_proj": Matrix(keys, hidden, biased),
        "self_attn.v_proj": Matrix(keys, hidden, biased),
        "self_attn.o_proj": Matrix(hidden, queries),
    }
    if family.head_norms:
        parts |= {"self_attn.q_norm": Vector(size), "self_attn.k_norm": Vector(size)}
    return parts


def quantization_for(config: ModelConfig, part: str) -> Quantization | None:
    """The format of a quantized matrix; None for a dense one."""
    return config.quantization_overrides.get(part, config.quantization)


def check_tensors(config: ModelConfig, tensors: Mapping[str, TensorEntry]) -> dict[str, ExpectedTensor]:
    """The tensors that the model needs, by name; LoadError unless `tensors` has exactly these."""
    expected: dict[str, ExpectedTensor] = {}
    for part, sizes in layout(config).items():
        if isinstance(sizes, Matrix):
            packed = f"{part}.scales" in tensors
            _check_quantization(config, part, sizes, packed)
            expected |= _of_matrix(part, sizes, quantization_for(config, part) if packed else None)
        else:
            expected[f"{part}.weight"] = ExpectedTensor(FLOATS, (sizes.size,))
    for problem in _problems(config, expected, tensors):
        raise LoadError(f"{problem} (from config.json)")
    return expected


def _check_quantization(config: ModelConfig, part: str, sizes: Matrix, packed: bool) -> None:
    """Check that config and files agree; a matrix without an entry of its own may be dense anyway."""
    quantization, scales = quantization_for(config, part), f"{part}.scales"
    if packed and quantization is None:
        raise LoadError(f"{scales!r}: unexpected tensor: config.json declares this matrix as dense")
    if quantization is not None and not packed and part in config.quantization_overrides:
        raise LoadError(f"{scales!r}: missing: config.json declares this matrix as quantized")
    if quantization is not None and packed and sizes.inputs % quantization.group_size != 0:
        raise LoadError(
            f"{scales!r}: got rows of {sizes.inputs}, expected a multiple of {quantization.group_size}"
        )


def _of_matrix(part: str, sizes: Matrix, quantization: Quantization | None) -> dict[str, ExpectedTensor]:
    outputs, inputs, bias = sizes
    expected = {f"{part}.bias": ExpectedTensor(FLOATS, (outputs,))} if bias else {}
    if quantization is None:
        return expected | {f"{part}.weight": ExpectedTensor(FLOATS, (outputs, inputs))}
    groups = ExpectedTensor(FLOATS, (outputs, inputs // quantization.group_size))
    words = ExpectedTensor(("U32",), (outputs, inputs * quantization.bits // 32))
    return expected | {f"{part}.weight": words, f"{part}.scales": groups, f"{part}.biases": groups}


def _problems(
    config: ModelConfig, expected: Mapping[str, ExpectedTensor], tensors: Mapping[str, TensorEntry]
) -> Iterator[str]:
    for name, (dtypes, shape) in expected.items():
        tensor = tensors.get(name)
        if tensor is None:
            yield f"{name!r}: is missing, expected {list(shape)}"
        elif tensor.shape != shape:
            yield f"{name!r}: got shape {list(tensor.shape)}, expected {list(shape)}"
        elif tensor.dtype not in dtypes:
            yield f"{name!r}: got {tensor.dtype}, expected {' or '.join(dtypes)}"
    for name in tensors.keys() - expected.keys():
        tied = config.tie_word_embeddings and name.startswith("lm_head.")
        if not tied and not IGNORED.fullmatch(name):
            yield f"{name!r}: is not part of a {config.model_type} model"
