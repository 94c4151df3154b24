"""One request of a batch: its prompt is prefilled in chunks, then each decode step adds one token."""

import time
from dataclasses import replace
from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..errors import AnswerError, ArgumentError
from ..sampling.params import GREEDY, Sampling
from ..sampling.stop import StopStrings
from .defaults import BATCH_PREFILL_STEP
from .protocols import CREATE_KV_CACHE, CachedModel, TokenizerProtocol
from .result import Result
from .result_builder import ResultBuilder
from .sequence import eval_caches, next_logits
from .text import TextStream, check_model, check_sampling, encode_prompt, end_tokens, new_detokenizer
from .tokens import TokenSampler


class Request:
    """One prompt and its answer: first prefill in chunks, then decode token by token.

    offset: number of tokens in `kv_cache`.
    next_token: the newest token, not yet in the cache.
    prompt_ids: the checked ids of `prompt`, if the caller has them.
    """

    def __init__(
        self,
        model: CachedModel,
        tokenizer: TokenizerProtocol,
        prompt: str,
        prefill_max_step: int = BATCH_PREFILL_STEP,
        prompt_idx: int = 0,
        *,
        sampling: Sampling = GREEDY,
        prompt_ids: list[int] | None = None,
    ):
        check_model("Request", "model", model, CREATE_KV_CACHE)
        check_size("Request", "prefill_max_step", prefill_max_step)
        ids = encode_prompt("Request", [model], tokenizer, prompt) if prompt_ids is None else prompt_ids
        self.prompt = prompt
        self.model = model
        self.prefill_tokens = mx.array(ids)
        self.kv_cache: list[Any] = model.create_kv_cache()
        self.prefill_max_step = prefill_max_step
        self.prompt_idx = prompt_idx
        self.eos_token_id = tokenizer.eos_token_id
        self.detokenizer = new_detokenizer(tokenizer)
        self.is_done = False
        self.error: AnswerError | None = None
        self.is_prefill_done = False
        self.next_token: int | None = None
        self.offset = 0
        check_sampling("Request", sampling, [model], None)
        ends = end_tokens(tokenizer)
        self.sampler = TokenSampler.make(sampling, ids, ends)
        self._limit = sampling.max_tokens
        self._start_time = time.perf_counter()
        self._answer = ResultBuilder(
            TextStream(self.detokenizer),
            sampling.ending_tokens(ends),
            StopStrings(sampling.stop),
            len(ids),
            min_tokens=sampling.min_tokens,
        )

    def try_prefill(self) -> None:
        """Prefill the next chunk of the prompt; the last chunk gives the first token of the answer."""
        if self.is_prefill_done:
            raise ArgumentError(
                "Request", "try_prefill", "a call after the prompt was prefilled", "decode_done"
            )
        chunk = self.prefill_tokens[self.offset : self.offset + self.prefill_max_step]
        logits = next_logits(self.model, chunk[None], [self.offset], self.kv_cache)
        eval_caches(self.kv_cache)
        self.offset += chunk.size
        if self.offset == self.prefill_tokens.size:
            self.is_prefill_done = True
            self.decode_done(self.sampler.result(self.sampler.sample(logits)), update_offset=False)

    def decode_done(self, token: int, update_offset: bool = True) -> None:
        """Add the token of a decode step; an end token ends the request and is not part of the text."""
        if self.is_done:
            raise ArgumentError("Request", "decode_done", "a token after the end", "none")
        self._answer.append(token, time.perf_counter() - self._start_time)
        if not self._answer.at_end_token:
            self.next_token = token
            self.offset += update_offset
        if self._answer.stopped or len(self._answer.token_ids) == self._limit:
            self.finish()

    def finish(self) -> None:
        """End the answer here."""
        self.is_done = True
        self._answer.finish()

    def fail(self, error: AnswerError) -> None:
        """End the answer by an error; its finish_reason stays None."""
        self.is_done, self.error = True, error

    def text(self) -> str:
        """The answer so far, in whole characters."""
        return self._answer.text

    @property
    def result(self) -> Result:
        """Text, tokens and statistics so far."""
        return replace(self._answer.result, error=self.error)

    def release(self) -> None:
        """Return what the caches hold of shared storage."""
        for layer in self.kv_cache:
            layer.release()
