"""From a request to what the engine keeps of it; refuses what can never run."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ArgumentError
from ..generation.loaded import LoadedModel
from ..generation.text import end_tokens
from ..sampling.grammar import start_grammar
from ..sampling.rows import RowSampler
from ..scheduler import RequestState
from .answer import Answer
from .handle import Handle
from .model_drafts import ModelDrafts
from .request import EngineRequest

NAME = "Engine.submit"


class Admission:
    """Checks requests for one model and a context."""

    def __init__(self, llm: LoadedModel, context: int, lookup: bool, model_drafts: ModelDrafts | None):
        self._llm = llm
        self._context = context
        self._lookup = lookup
        self._model_drafts = model_drafts
        self._end_tokens = end_tokens(llm.tokenizer)

    def admit(
        self, request: EngineRequest, now: float, cancel: Callable[[Handle], None]
    ) -> tuple[RequestState, Answer]:
        """The request for the scheduler, and its first answer, which others fork from."""
        prompt_ids = self._checked_prompt(request)
        max_tokens = self._limit(request, len(prompt_ids))
        state = RequestState(
            request.id,
            prompt_ids,
            max_tokens,
            salt=request.salt,
            scores_prompt=request.prompt_logprobs is not None,
            choices=request.n,
            deadline=None if request.deadline is None else now + request.deadline,
        )
        sampling = request.sampling.with_seed()
        assert sampling.seed is not None
        grammar = None if request.grammar is None else start_grammar(self._llm.tokenizer, request.grammar)
        sampler = RowSampler(sampling, sampling.seed, 0, prompt_ids, self._end_tokens, grammar)
        handle = Handle(request.id, len(prompt_ids), request.n, lambda: cancel(handle), now)
        answer = Answer(
            request,
            handle,
            0,
            self._llm.tokenizer,
            sampler,
            max_tokens,
            lookup=self._lookup,
            model_drafts=None if self._model_drafts is None else self._model_drafts.fork(),
        )
        return state, answer

    def _checked_prompt(self, request: EngineRequest) -> tuple[int, ...]:
        vocabulary = self._llm.model.vocab_size
        prompt_ids = tuple(request.prompt_ids)
        if not prompt_ids:
            raise ArgumentError(NAME, "prompt_ids", "no tokens", "at least one")
        # MLX checks no index: an unknown id would read past the table of tokens.
        if not all(isinstance(token, int) and 0 <= token < vocabulary for token in prompt_ids):
            raise ArgumentError(NAME, "prompt_ids", "an unknown token id", f"ids from 0 to {vocabulary - 1}")
        if len(prompt_ids) >= self._context:
            expected = f"fewer than the context of {self._context}"
            raise ArgumentError(NAME, "prompt_ids", f"{len(prompt_ids)} tokens", expected)
        request.sampling.check_vocabulary(NAME, vocabulary)
        return prompt_ids

    def _limit(self, request: EngineRequest, prompt_tokens: int) -> int:
        """The maximum number of tokens of an answer."""
        room, wanted = self._context - prompt_tokens, request.sampling.max_tokens
        if wanted is not None and wanted > room:
            raise ArgumentError(
                NAME,
                "max_tokens",
                f"{wanted} after a prompt of {prompt_tokens} tokens",
                f"at most {room}, as the context has {self._context}",
            )
        return room if wanted is None else wanted
