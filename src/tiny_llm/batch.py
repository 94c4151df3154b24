"""Continuous batching: requests share the decode steps; each joins and leaves when it is ready.

The readable form, for any model of the course. `tiny-llm batch` and `LLM` answer lists on `engine/`.
"""

from collections.abc import Callable
from typing import Any

from .checks.types import check_function, check_size, check_texts
from .errors import ArgumentError
from .generation.batching import run_batch
from .generation.defaults import BATCH_MAX_SEQ_LEN, BATCH_PREFILL_STEP, BATCH_SIZE
from .generation.protocols import CREATE_KV_CACHE, TokenizerProtocol
from .generation.request import Request
from .generation.text import check_model, check_tokenizer, context_length, encode_prompt

__all__ = ["Request", "batch_generate"]


def batch_generate(
    model: Any,
    tokenizer: TokenizerProtocol,
    prompts: list[str],
    max_seq_len: int = BATCH_MAX_SEQ_LEN,
    batch_size: int = BATCH_SIZE,
    prefill_step: int = BATCH_PREFILL_STEP,
    *,
    finished: Callable[[Request], None] | None = None,
) -> list[tuple[int, str]]:
    """Answer all `prompts` greedily, up to `batch_size` at a time; return pairs of index and text, in order.

    Each round prefills a chunk of at most `prefill_step` tokens of one prompt, and decodes one token of
    each active request. A request ends with an end token, or at `max_seq_len` tokens in its cache; then
    `finished` is called with it. If the logits of one are NaN, NumericError is raised after the others have
    ended.
    """
    sizes = {"max_seq_len": max_seq_len, "batch_size": batch_size, "prefill_step": prefill_step}
    for name, size in sizes.items():
        check_size("batch_generate", name, size)
    check_model("batch_generate", "model", model, CREATE_KV_CACHE, "num_hidden_layers")
    check_tokenizer("batch_generate", "tokenizer", tokenizer)
    check_texts("batch_generate", "prompts", prompts)
    if finished is not None:
        check_function("batch_generate", "finished", finished)
    longest = min(max_seq_len, context_length(model) or max_seq_len)
    prompt_ids = []
    for index, prompt in enumerate(prompts):
        ids = encode_prompt("batch_generate", [model], tokenizer, prompt)
        if len(ids) >= longest:
            raise ArgumentError(
                "batch_generate", f"prompts[{index}]", f"{len(ids)} tokens", f"fewer than {longest}"
            )
        prompt_ids.append(ids)
    chunk = min(prefill_step, longest)  # a longer chunk than every prompt changes nothing

    def make_request(index: int) -> Request:
        return Request(model, tokenizer, prompts[index], chunk, index, prompt_ids=prompt_ids[index])

    requests = run_batch(model, len(prompts), make_request, longest, batch_size, finished)
    return [(request.prompt_idx, request.text()) for request in requests]
