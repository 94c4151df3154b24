"""The choices of an answer, as they are streamed and as a whole; both come from the same deltas."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from ...engine import Event
from ...generation.result import TokenLogprobs
from ..protocols import ServerTokenizer
from .pieces import AnswerReader, Call, Content, Piece, Reasoning

LOWEST = -9999.0  # JSON has no -inf; OpenAI's answers have this number
CHAT_STREAM, CHAT_WHOLE = "chat.completion.chunk", "chat.completion"
COMPLETION = "text_completion"


def chat_logprobs(entries: Iterable[TokenLogprobs], tokenizer: ServerTokenizer) -> dict[str, Any]:
    """Of a chat completion: each token with its bytes and alternatives."""
    content = []
    for entry in entries:
        top = [_named(token, logprob, tokenizer) for token, logprob in entry.top]
        content.append({**_named(entry.token_id, entry.logprob, tokenizer), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _named(token: int, logprob: float, tokenizer: ServerTokenizer) -> dict[str, Any]:
    written = tokenizer.token_bytes(token)
    return {"token": written.decode(errors="replace"), "logprob": finite(logprob), "bytes": list(written)}


class CompletionLogprobs:
    """Of a completion: parallel lists."""

    def __init__(self, tokenizer: ServerTokenizer):
        self._tokenizer = tokenizer
        self._offset = 0  # characters of the text before the next token

    def shape(self, entries: Iterable[TokenLogprobs | int]) -> dict[str, list[Any]]:
        """The entries of the next tokens; of a first token, which has none, the id."""
        shaped: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for entry in entries:
            if isinstance(entry, int):
                token, logprob, top = self._text(entry), None, None
            else:
                token, logprob = self._text(entry.token_id), finite(entry.logprob)
                top = {self._text(other): finite(value) for other, value in entry.top}
            shaped["tokens"].append(token)
            shaped["token_logprobs"].append(logprob)
            shaped["top_logprobs"].append(top)
            shaped["text_offset"].append(self._offset)
            self._offset += len(token)
        return shaped

    def _text(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode(errors="replace")


def finite(logprob: float) -> float:
    return logprob if logprob > LOWEST else LOWEST  # NaN, too


class Choice(Protocol):
    """One answer. `deltas` gives the entries of `choices` in a stream, `whole` the one of a whole answer.

    finish_reason: None until the answer has ended, perhaps before its last event.
    """

    finish_reason: str | None

    @property
    def reasoning_tokens(self) -> int: ...

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]: ...

    def whole(self) -> dict[str, Any]: ...


class ReadChoice:
    """A choice that is made of the pieces of a text."""

    def __init__(self, reader: AnswerReader):
        self._reader = reader
        self.finish_reason: str | None = None

    @property
    def reasoning_tokens(self) -> int:
        return self._reader.reasoning_tokens


class ChatChoice(ReadChoice):
    def __init__(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader):
        super().__init__(reader)
        self._index = index
        self._tokenizer = tokenizer
        self._begun = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._logprobs: dict[str, Any] | None = None

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        """The role first; then an entry for each piece, the log probabilities with the first one."""
        if not self._begun:
            self._begun = True
            yield self._entry({"role": "assistant", "content": ""})
        pieces, ended = self._reader.read(event)
        logprobs = None
        if event.logprobs:
            logprobs = chat_logprobs(event.logprobs, self._tokenizer)
            self._keep_logprobs(logprobs)
        deltas = [self._delta(piece) for piece in pieces]
        if ended is not None:
            self.finish_reason = "tool_calls" if self._calls and ended == "stop" else ended
        if not deltas and (logprobs or ended):
            deltas = [{}]
        for number, delta in enumerate(deltas):
            last = number == len(deltas) - 1
            yield self._entry(delta, logprobs if number == 0 else None, self.finish_reason if last else None)

    def whole(self) -> dict[str, Any]:
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["content"] = content or None
            message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in self._calls]
        return {
            "index": self._index,
            "message": message,
            "logprobs": self._logprobs,
            "finish_reason": self.finish_reason,
        }

    def _delta(self, piece: Piece) -> dict[str, Any]:
        match piece:
            case Content(text):
                self._content.append(text)
                return {"content": text}
            case Reasoning(text):
                self._reasoning.append(text)
                return {"reasoning_content": text}
            case Call(name, arguments, call_id):
                function = {"name": name, "arguments": arguments}
                call = {"index": len(self._calls), "id": call_id, "type": "function", "function": function}
                self._calls.append(call)
                return {"tool_calls": [call]}

    def _keep_logprobs(self, logprobs: dict[str, Any]) -> None:
        if self._logprobs is None:
            self._logprobs = {"content": [], "refusal": None}
        self._logprobs["content"] += logprobs["content"]

    def _entry(
        self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


class CompletionChoice:
    """`echo` is the prompt if it is repeated before the answer, else empty; `first` is its first token."""

    reasoning_tokens = 0

    def __init__(self, index: int, tokenizer: ServerTokenizer, echo: str, first: int):
        self._index = index
        self._echo = echo
        self._first = first
        self._shaper = CompletionLogprobs(tokenizer)
        self._text: list[str] = []
        self._logprobs: dict[str, list[Any]] | None = None
        self.finish_reason: str | None = None

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        """One entry, unless there is nothing new."""
        if event.prompt_logprobs is None:
            known: list[TokenLogprobs | int] = list(event.logprobs or ())
        else:
            known = [self._first, *event.prompt_logprobs, *(event.logprobs or ())]
        text, self._echo = self._echo + event.text, ""
        logprobs = None
        if known:
            logprobs = self._shaper.shape(known)
            if self._logprobs is None:
                self._logprobs = {name: [] for name in logprobs}
            for name, values in logprobs.items():
                self._logprobs[name] += values
        self._text.append(text)
        self.finish_reason = event.finish_reason
        if text or logprobs or event.finish_reason is not None:
            yield self._entry(text, logprobs)

    def whole(self) -> dict[str, Any]:
        return self._entry("".join(self._text), self._logprobs)

    def _entry(self, text: str, logprobs: dict[str, list[Any]] | None) -> dict[str, Any]:
        return {
            "index": self._index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": self.finish_reason,
        }
