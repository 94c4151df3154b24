"""Log probabilities of tokens in the two shapes of OpenAI's interface."""

from collections.abc import Iterable
from typing import Any

from ...generation.result import TokenLogprobs
from ..door import Tokenizer

LOWEST = -9999.0  # JSON has no -inf; OpenAI's answers have this number


def chat_logprobs(entries: Iterable[TokenLogprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    """Of a chat completion: each token with its bytes and alternatives."""
    content = []
    for entry in entries:
        top = [_named(token, logprob, tokenizer) for token, logprob in entry.top]
        content.append({**_named(entry.token_id, entry.logprob, tokenizer), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _named(token: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    written = tokenizer.token_bytes(token)
    return {"token": written.decode(errors="replace"), "logprob": finite(logprob), "bytes": list(written)}


class CompletionLogprobs:
    """Of a completion: parallel lists."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._offset = 0  # the place of the next token in the text

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
