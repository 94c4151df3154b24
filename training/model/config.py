"""The shape of the model, and the files that describe it in the Hugging Face layout."""

from dataclasses import asdict, dataclass
from typing import Any

QUANTIZATION = {"group_size": 64, "bits": 4, "mode": "affine"}


@dataclass(frozen=True)
class ModelConfig:
    """Names as in a Qwen2 config.json; the head size is hidden_size / num_attention_heads = 128."""

    hidden_size: int = 512
    num_hidden_layers: int = 8
    intermediate_size: int = 896
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    vocab_size: int = 4096
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    max_position_embeddings: int = 2048

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def to_json(self, *, dtype: str, quantized: bool) -> dict[str, Any]:
        result = {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            **asdict(self),
            "hidden_act": "silu",
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "use_cache": True,
            "use_sliding_window": False,
            "bos_token_id": None,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "torch_dtype": dtype,
        }
        if quantized:
            result |= {"quantization": QUANTIZATION, "quantization_config": QUANTIZATION}
        return result


GENERATION = {"eos_token_id": [2, 0], "pad_token_id": 0, "do_sample": False}
