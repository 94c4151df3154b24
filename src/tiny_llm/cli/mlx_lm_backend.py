"""The backend of `--solution mlx`: mlx-lm's model and generation loop, on weights that our loader read.

Importing mlx-lm takes two seconds, so the functions here import it when they run.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import mlx.core as mx

from ..generation.defaults import MAX_TOKENS, prefill_chunk
from ..generation.generation import Generation
from ..generation.text import TextStream, encode_prompt, end_tokens, new_detokenizer
from ..generation.tokens import refuse_nan
from ..loading.progress import Progress
from ..loading.weights.tree import named_arrays, named_parts
from ..runtime.kernel_cache import kernel_cache
from ..sampler import sampler_of
from ..sampling.grammar import Grammar
from ..sampling.params import Sampling
from ..sampling.processors import logits_processors
from ..sampling.stop import StopStrings
from .backends import Backend
from .exit_codes import Failure
from .progress import prefill_progress

PINNED = "mlx-lm==0.32.2"  # the version our benchmarks use


class MlxLmBackend(Backend):
    """mlx-lm with our tokenizer and sampler, so that the same options mean the same."""

    def __init__(self, checkpoint: Any, dtype: mx.Dtype, description: dict[str, Any], progress: Progress):
        super().__init__(checkpoint.tokenizer, description, checkpoint.config.max_position_embeddings)
        self.model = mlx_lm_model(checkpoint.mlx_model, dtype, progress)

    def generate(
        self, prompt: str, sampling: Sampling, progress: Progress, grammar: Grammar | None = None
    ) -> Generation:
        """Start an answer; the command refuses a grammar for mlx-lm's models."""
        from mlx_lm.generate import generate_step

        ids = encode_prompt("", [], self.tokenizer, prompt, self.context)

        def tokens() -> Iterator[int]:
            steps = generate_step(
                mx.array(ids),
                self.model,
                max_tokens=min(sampling.max_tokens or MAX_TOKENS, self.context - len(ids)),
                sampler=sampler_of(sampling),
                logits_processors=logits_processors(sampling, len(ids)),
                prefill_step_size=prefill_chunk(),
                prompt_progress_callback=prefill_progress(progress, kernel_cache()),
            )
            for token, logprobs in steps:
                refuse_nan([logprobs[token].item()])
                yield int(token)

        text = TextStream(new_detokenizer(self.tokenizer))
        ends = sampling.ending_tokens(end_tokens(self.tokenizer))
        return Generation(tokens(), text, ends, StopStrings(sampling.stop), len(ids))


def check_mlx_lm() -> None:
    """Failure that says what to install, if mlx-lm is missing."""
    if find_spec("mlx_lm") is None:
        raise Failure(f"mlx-lm is not installed: pip install {PINNED}")


def mlx_lm_model(checkpoint: Any, dtype: mx.Dtype, progress: Progress) -> Any:
    """mlx-lm's model with the arrays of a checkpoint that our loader made."""
    progress("importing mlx-lm", 0, None)
    from mlx.nn.layers.quantized import quantize

    sizes = checkpoint.args
    if (sizes.rope_scaling or {}).get("attention_factor") is not None:
        raise Failure("mlx-lm ignores the attention_factor of rope_scaling in config.json; leave it out")
    from mlx_lm.utils import MODEL_REMAPPING

    family = MODEL_REMAPPING.get(sizes.model_type, sizes.model_type)
    module: Any = import_module(f"mlx_lm.models.{family}")

    progress("building the mlx-lm model", 0, None)
    model = module.Model(module.ModelArgs.from_dict(vars(sizes)))
    parts = dict(named_parts(checkpoint))

    def quantization(name: str, layer: Any) -> bool | dict[str, int]:
        part = parts.get(name)
        if part is None or not hasattr(part, "scales"):
            return False
        return {"group_size": part.group_size, "bits": part.bits}

    quantize(model, class_predicate=quantization)
    model.load_weights([pair for name, part in parts.items() for pair in named_arrays(part, name).items()])
    model.set_dtype(dtype)
    mx.eval(model.parameters())
    return model
