"""Requests whose greedy answers are known, in the form of each route, and the texts in what comes back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tiny_llm import LLM
from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.sampling.params import Sampling

# Activations of the server may have 16 bits, and rounding depends on the batch: an answer is compared as long
# as the best logit is clearly ahead.
MARGIN = 0.5
FEWEST, MOST = 6, 48  # tokens of an answer
WORDS = (
    "time day house man boy dog tree river light word city year king friend story question game song".split()
)
BEGINNINGS = [
    "Once upon a time there was a {0} and a {1}.",
    "What is a {0}?",
    "Tell me about the {0} and the {1}, please.",
    "The {0} of the {1} was old. One day the {1}",
    "one two three {0} four five six {1} " * 4,
    "Here is a long text about a {0}. " * 12 + "What is it about, {1}?",
]

Record = dict[str, Any]


@dataclass(frozen=True)
class Route:
    """path: where to post. limit: the name of the field with the maximum number of tokens.

    prompt: the fields of a text. whole: the text of an answer. piece: the text of an event. is_end: whether
    an event (None: [DONE]) ends a complete stream.
    """

    path: str
    is_chat: bool
    limit: str
    prompt: Callable[[str], Record]
    whole: Callable[[Record], str]
    piece: Callable[[Record], str]
    is_end: Callable[[Record | None], bool]


def _messages(text: str) -> Record:
    return {"messages": [{"role": "user", "content": text}]}


def _texts(parts: list[Record]) -> str:
    return "".join(part["text"] for part in parts)


ROUTES = {
    "chat": Route(
        "/v1/chat/completions",
        True,
        "max_tokens",
        _messages,
        lambda answer: answer["choices"][0]["message"]["content"],
        lambda event: event["choices"][0]["delta"].get("content") or "",
        lambda event: event is None,
    ),
    "completions": Route(
        "/v1/completions",
        False,
        "max_tokens",
        lambda text: {"prompt": text},
        lambda answer: answer["choices"][0]["text"],
        lambda event: event["choices"][0]["text"],
        lambda event: event is None,
    ),
    "responses": Route(
        "/v1/responses",
        True,
        "max_output_tokens",
        lambda text: {"input": text},
        lambda answer: "".join(_texts(item["content"]) for item in answer["output"]),
        lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
        lambda event: event is not None and event["type"] in ("response.completed", "response.incomplete"),
    ),
    "messages": Route(
        "/v1/messages",
        True,
        "max_tokens",
        _messages,
        lambda answer: _texts(answer["content"]),
        lambda event: event["delta"]["text"] if event["type"] == "content_block_delta" else "",
        lambda event: event is not None and event["type"] == "message_stop",
    ),
}


@dataclass(frozen=True)
class Question:
    """A prompt, the maximum number of tokens of its answer, and that answer; for chats or for completions."""

    text: str
    is_chat: bool
    max_tokens: int
    answer: str

    def fields(self, route: Route) -> Record:
        return {**route.prompt(self.text), route.limit: self.max_tokens, "temperature": 0}


def make_questions(count: int, seed: int) -> list[Question]:
    """So many for chats, and so many for completions, with the answers of the model alone in float32."""
    numbers = random.Random(seed)
    llm = LLM("tiny", dtype="float32")
    questions: list[Question] = []
    with Engine(llm, max_running=1, prefix_cache=False, lookup=False) as engine:
        for is_chat in (True, False):
            found: dict[str, Question] = {}
            while len(found) < count:
                text = numbers.choice(BEGINNINGS).format(*numbers.sample(WORDS, 2))
                question = _question(engine, text, is_chat)
                if question is not None:
                    found[text] = question
            questions += found.values()
    return questions


def _question(engine: Engine, text: str, is_chat: bool) -> Question | None:
    """None where the model is undecided early."""
    tokenizer = engine.llm.tokenizer
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": text}]) if is_chat else text
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    most = min(MOST, engine.context - len(ids))

    def answer(limit: int) -> tuple[str, list[Any]]:
        request = EngineRequest(prompt_ids=ids, sampling=Sampling(max_tokens=limit), logprobs=2)
        events = list(engine.submit(request))
        return "".join(e.text for e in events), [entry for e in events for entry in e.logprobs or ()]

    whole, entries = answer(most)
    sure = 0
    for entry in entries:
        (_, best), (_, second) = entry.top
        if best - second < MARGIN:
            break
        sure += 1
    if sure < FEWEST:
        return None
    if sure == len(entries):
        return Question(text, is_chat, most, whole)
    return Question(text, is_chat, sure, answer(sure)[0])
