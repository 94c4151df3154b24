"""POST /v1/completions: from its fields to a job, and how its answers are written."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from ...engine import Event
from ...generation.result import TokenLogprobs
from ..errors import bad_value, unsupported
from ..models import ServedModel, ServerTokenizer
from ..settings import Settings
from .chat import ChoicesEncoder, FinishReason, TokenUsage, finite
from .fields import CompletionFields
from .grammar import read_grammar
from .job import AnswerEncoder, Choice, Job
from .prompt import check_chars
from .sampling import (
    answer_limit,
    check_choices,
    check_ids,
    check_logprobs,
    context_exceeded,
    engine_request,
    new_id,
    read_stream,
)

DEFAULT_MAX_TOKENS = 16  # as at OpenAI
KIND, ID_PREFIX = "text_completion", "cmpl"


class CompletionAnswerChoice(Struct):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason


class CompletionAnswer(Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionAnswerChoice]
    usage: TokenUsage


def prepare_completion(
    fields: CompletionFields, model: ServedModel, settings: Settings, encoder: AnswerEncoder | None = None
) -> Job:
    """Encodes the prompts, which takes time: not for the event loop.

    Other interfaces have an `encoder` of their own.
    """
    tokenizer, context = model.tokenizer, model.engine.context
    prompts = read_prompts(fields, model, settings)
    check_choices(fields, len(prompts), settings)
    if fields.best_of is not None and fields.best_of != (fields.n or 1):
        raise unsupported("best_of", "expected the value of n: answers are not ranked")
    stream, include_usage = read_stream(fields)
    check_logprobs(fields.logprobs, "logprobs", settings)
    grammar = read_grammar(fields)
    if fields.max_tokens == 0 and not fields.echo:
        raise bad_value("max_tokens", "at least 1 without echo")
    # An engine has the log probabilities of a prompt with its first token. If none is asked for, it is
    # dropped.
    asked = 1 if fields.max_tokens == 0 else fields.max_tokens
    prompt_logprobs = fields.logprobs if fields.echo else None
    encoder = encoder or ChoicesEncoder(KIND, KIND, include_usage, ID_PREFIX)
    job_id, choices, requests = new_id(ID_PREFIX), list[Choice](), []
    for ids, added in prompts:
        if len(ids) > context:  # before anything is decoded
            raise context_exceeded(len(ids), fields.max_tokens or 0, context, "prompt")
        echo = tokenizer.decode(ids[added:]) if fields.echo else ""
        numbers = range(len(choices), len(choices) + (fields.n or 1))
        choices += [CompletionChoice(index, tokenizer, echo, ids[: added + 1]) for index in numbers]
        if fields.max_tokens == 0 and prompt_logprobs is None:  # only the echo, which needs no engine
            continue
        limit = answer_limit(asked, "max_tokens", len(ids), context, DEFAULT_MAX_TOKENS)
        request = engine_request(
            fields,
            ids,
            limit,
            model,
            job_id,
            grammar=grammar,
            logprobs=fields.logprobs,
            prompt_logprobs=prompt_logprobs,
        )
        requests.append(request)
    return Job(
        model=model,
        requests=requests,
        choices=choices,
        encoder=encoder,
        stream=stream,
        prompt_tokens=sum(len(prompt.ids) for prompt in prompts),
        prompts_only=fields.max_tokens == 0,
        id=job_id,
    )


class PromptIds(NamedTuple):
    """The ids of a prompt, of which the first `added` are not of its text."""

    ids: list[int]
    added: int = 0


def read_prompts(fields: CompletionFields, model: ServedModel, settings: Settings) -> list[PromptIds]:
    """The ids of each prompt: a text, a list of texts, ids, or a list of lists of ids."""
    given, tokenizer = fields.prompt, model.tokenizer
    several = [given] if isinstance(given, str) else given
    if not several:
        raise bad_value("prompt", "at least one prompt")
    kinds = {type(each) for each in several}
    if len(kinds) > 1:
        raise bad_value("prompt", "texts, ids, or lists of ids, not a mixture")
    if kinds == {str}:
        check_choices(fields, len(several), settings)  # before anything is encoded
        texts = [str(text) for text in several]
        for text in texts:
            check_chars("prompt", [text], model, settings)
        first = tokenizer.first_text
        prompts = [
            PromptIds(tokenizer.encode_raw(text), int(bool(first) and not text.startswith(first)))
            for text in texts
        ]
    else:
        lists: list[list[int]] = [several] if kinds == {int} else several  # type: ignore[list-item, assignment]
        for ids in lists:
            check_ids("prompt", ids, tokenizer.vocab_size)
        prompts = [PromptIds(ids) for ids in lists]
    if not all(prompt.ids for prompt in prompts):
        raise bad_value("prompt", "at least one token")
    return prompts


class CompletionChoice:
    """`echo` is the text of the prompt if it is repeated before the answer, else empty.

    begin: the first token of that text, and the one before it if there is one.
    """

    reasoning_tokens = 0

    def __init__(self, index: int, tokenizer: ServerTokenizer, echo: str, begin: list[int]):
        self._index = index
        self._echo = echo
        self._first = begin[0]
        self._shaper = CompletionLogprobs(tokenizer)
        if echo:
            self._shaper.skip(begin)
        self._text: list[str] = []
        self._logprobs: dict[str, list[Any]] | None = None
        self.finish_reason: str | None = None

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        """One entry, unless there is nothing new."""
        known: list[TokenLogprobs | int] = list(event.logprobs or ())
        if event.prompt_logprobs is not None:
            known = [self._first, *event.prompt_logprobs, *known]
        text, self._echo = self._echo + event.text, ""
        logprobs = self._shaper.shape(known) if known else None
        if logprobs is not None:
            self._logprobs = self._logprobs or {name: [] for name in logprobs}
            for name, values in logprobs.items():
                self._logprobs[name] += values
        self._text.append(text)
        self.finish_reason = event.finish_reason
        if text or logprobs or event.finish_reason is not None:
            yield self._entry(text, logprobs)

    def whole(self) -> dict[str, Any]:
        return self._entry("".join(self._text), self._logprobs)

    def _entry(self, text: str, logprobs: dict[str, list[Any]] | None) -> dict[str, Any]:
        ends = self.finish_reason
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": ends}


class CompletionLogprobs:
    """The log probabilities of a completion: parallel lists."""

    def __init__(self, tokenizer: ServerTokenizer):
        self._tokenizer = tokenizer
        self._offset = 0  # characters of the text before the next token

    def skip(self, begin: list[int]) -> None:
        """What these have more than the text of a prompt: a token before it, a space of SentencePiece."""
        *_, first = begin
        self._offset = len(self._tokenizer.decode([first])) - sum(len(self._text(token)) for token in begin)

    def shape(self, entries: Iterable[TokenLogprobs | int]) -> dict[str, list[Any]]:
        """The entries of the next tokens; of a first token, which has none, the id."""
        tokens, token_logprobs, top_logprobs, offsets = [], [], [], []
        for entry in entries:
            if isinstance(entry, int):
                token, logprob, top = self._text(entry), None, None
            else:
                token, logprob = self._text(entry.token_id), finite(entry.logprob)
                top = {self._text(other): finite(value) for other, value in entry.top}
            tokens.append(token)
            token_logprobs.append(logprob)
            top_logprobs.append(top)
            offsets.append(max(self._offset, 0))
            self._offset += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode(errors="replace")
