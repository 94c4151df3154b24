"""FlashAttention for MLX and the readable layers around it."""

from typing import TYPE_CHECKING, Any

try:
    import mlx.core as mx
except ImportError as error:  # before all other imports, which need MLX
    from .runtime.mlx_packages import refuse

    refuse(error)

from . import (
    attention,
    basics,
    batch,
    embedding,
    generate,
    kv_cache,
    layer_norm,
    models,
    paged_kv_cache,
    positional_encoding,
    quantize,
    qwen2_week1,
    qwen2_week2,
    qwen2_week3,
    qwen3,
    sampler,
)
from .attention import (
    Explanation,
    SimpleMultiHeadAttention,
    attention_reference,
    causal_mask,
    explain,
    flash_attention,
    flash_attention_prefill,
    flash_attention_varlen,
    merge_lse,
    merge_partials,
    paged_attention,
    paged_attention_decode,
    scaled_dot_product_attention_grouped,
    scaled_dot_product_attention_simple,
    store_kvcache,
)
from .basics import linear, silu, softmax
from .batch import Request, batch_generate
from .course.dispatch import dispatch_model
from .course.packed_prompts import naive_tile_attention, standard_attention
from .course.schedules import flash_attention_v1, flash_attention_v2
from .embedding import Embedding
from .errors import (
    AnswerError,
    ArgumentError,
    ArgumentTypeError,
    GrammarError,
    NumericError,
    OutOfMemoryError,
    RefusedArgument,
    TinyLlmError,
    UnsupportedError,
)
from .generate import simple_generate, simple_generate_with_kv_cache, speculative_generate, stream_generate
from .generation.result import Result, Statistics, TokenLogprobs
from .kv_cache import BatchingKvCache, TinyKvCache, TinyKvFullCache
from .layer_norm import RMSNorm
from .models import shortcut_name_to_full_name
from .ops.paged_info import PagedInfo
from .ops.varlen_info import VarlenInfo
from .paged_kv_cache import PagedKvMetadata, TinyKvPagedCache, TinyKvPagedPool
from .positional_encoding import RoPE
from .quantize import (
    QuantizedWeights,
    dequantize_linear,
    mx_quantized_matmul,
    quantized_linear,
    quantized_matmul,
)
from .qwen2_week1 import Qwen2ModelWeek1
from .qwen2_week2 import Qwen2ModelWeek2
from .qwen2_week3 import Qwen2ModelWeek3
from .qwen3 import Qwen3Model, Qwen3ModelWeek1, Qwen3ModelWeek3
from .sampler import make_sampler
from .sampling.grammar import Grammar
from .sampling.params import Sampling

models.dispatch_model = dispatch_model  # where the course looks for it

if TYPE_CHECKING:
    from .chat.session import ChatSession
    from .engine.stream import Stream
    from .llm import LLM
    from .loading import Checkpoint, LoadError, load

# The modules and mx: for the course's `from tiny_llm import *`.
__all__ = [
    "LLM",
    "AnswerError",
    "ArgumentError",
    "ArgumentTypeError",
    "BatchingKvCache",
    "ChatSession",
    "Checkpoint",
    "Embedding",
    "Explanation",
    "Grammar",
    "GrammarError",
    "LoadError",
    "NumericError",
    "OutOfMemoryError",
    "PagedInfo",
    "PagedKvMetadata",
    "QuantizedWeights",
    "Qwen2ModelWeek1",
    "Qwen2ModelWeek2",
    "Qwen2ModelWeek3",
    "Qwen3Model",
    "Qwen3ModelWeek1",
    "Qwen3ModelWeek3",
    "RMSNorm",
    "RefusedArgument",
    "Request",
    "Result",
    "RoPE",
    "Sampling",
    "SimpleMultiHeadAttention",
    "Statistics",
    "Stream",
    "TinyKvCache",
    "TinyKvFullCache",
    "TinyKvPagedCache",
    "TinyKvPagedPool",
    "TinyLlmError",
    "TokenLogprobs",
    "UnsupportedError",
    "VarlenInfo",
    "attention",
    "attention_reference",
    "basics",
    "batch",
    "batch_generate",
    "causal_mask",
    "dequantize_linear",
    "dispatch_model",
    "embedding",
    "explain",
    "flash_attention",
    "flash_attention_prefill",
    "flash_attention_v1",
    "flash_attention_v2",
    "flash_attention_varlen",
    "generate",
    "kv_cache",
    "layer_norm",
    "linear",
    "load",
    "make_sampler",
    "merge_lse",
    "merge_partials",
    "models",
    "mx",
    "mx_quantized_matmul",
    "naive_tile_attention",
    "paged_attention",
    "paged_attention_decode",
    "paged_kv_cache",
    "positional_encoding",
    "quantize",
    "quantized_linear",
    "quantized_matmul",
    "qwen2_week1",
    "qwen2_week2",
    "qwen2_week3",
    "qwen3",
    "sampler",
    "scaled_dot_product_attention_grouped",
    "scaled_dot_product_attention_simple",
    "shortcut_name_to_full_name",
    "silu",
    "simple_generate",
    "simple_generate_with_kv_cache",
    "softmax",
    "speculative_generate",
    "standard_attention",
    "store_kvcache",
    "stream_generate",
]

# Name -> module, imported on first use: attention needs no code that loads or runs models.
_LAZY = {
    "ChatSession": "chat.session",
    "LLM": "llm",
    "Stream": "engine.stream",
    "Checkpoint": "loading",
    "LoadError": "loading",
    "load": "loading",
}
_LAZY_MODULES = {"nn"}  # it imports mlx.nn, which nothing else here needs


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from .runtime.version import version

        return version()
    if name not in _LAZY and name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _LAZY_MODULES:
        return import_module(f".{name}", __name__)
    found = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LAZY_MODULES, "__version__"})
