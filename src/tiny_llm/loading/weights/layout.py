"""Which matrices and vectors a model of given sizes has, by the names that checkpoint files give them."""

from typing import NamedTuple

from ..config import ModelConfig


class Matrix(NamedTuple):
    """A linear map or a table, [outputs, inputs], which may be packed."""

    outputs: int
    inputs: int
    bias: bool = False


class Vector(NamedTuple):
    """The weights of a norm."""

    size: int


def layout(config: ModelConfig) -> dict[str, Matrix | Vector]:
    """Every part of the model; the files add ".weight", ".bias" and so on to its name."""
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


def weight_count(config: ModelConfig) -> int:
    """The numbers in all matrices, next to which those in vectors are few."""
    return sum(part.outputs * part.inputs for part in layout(config).values() if isinstance(part, Matrix))


def _attention(config: ModelConfig) -> dict[str, Matrix | Vector]:
    hidden, size = config.hidden_size, config.head_dim
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size
    biased = config.model_type == "qwen2"
    parts: dict[str, Matrix | Vector] = {
        "self_attn.q_proj": Matrix(queries, hidden, biased),
        "self_attn.k_proj": Matrix(keys, hidden, biased),
        "self_attn.v_proj": Matrix(keys, hidden, biased),
        "self_attn.o_proj": Matrix(hidden, queries),
    }
    if config.model_type == "qwen3":
        parts |= {"self_attn.q_norm": Vector(size), "self_attn.k_norm": Vector(size)}
    return parts
