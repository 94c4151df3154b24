"""The server with the real engine and the embedded model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tiny_llm import LLM
from tiny_llm.engine import Engine
from tiny_llm.sampling.params import Sampling
from tiny_llm.server.api.grammar import text_and_calls

from ..support.serving.running import RunningServer, running, wait_until
from .test_disconnects import reset, send

QUESTIONS = ["What is FlashAttention?", "Tell me a short story.", "What is 3 plus 4?", "Hello"]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", dtype="float32")


@pytest.fixture(scope="module")
def server(llm: LLM) -> Iterator[RunningServer]:
    with Engine(llm) as engine, running(engine) as started:
        yield started


def ask(server: RunningServer, question: str, **fields: Any) -> Any:
    return server.chat(messages=[{"role": "user", "content": question}], max_tokens=40, **fields).record


def test_many_clients_get_what_each_would_get_alone(server: RunningServer, llm: LLM) -> None:
    alone = [llm.chat(question, Sampling(max_tokens=40)).text for question in QUESTIONS]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda question: ask(server, question), QUESTIONS * 2))
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == alone * 2


def test_a_seed_repeats_an_answer(server: RunningServer) -> None:
    first, second = (ask(server, "Tell me a story.", temperature=1, seed=7, n=3) for _ in range(2))
    assert first["choices"] == second["choices"]
    assert len({choice["message"]["content"] for choice in first["choices"]}) > 1


def test_a_repeated_prompt_is_found_in_the_cache(server: RunningServer) -> None:
    prompt = "A long story about a fox. " * 20
    first, second = (server.complete(prompt=prompt).record for _ in range(2))
    assert first["choices"] == second["choices"]
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > second["usage"]["prompt_tokens"] / 2
    other = server.complete(prompt=prompt, cache_salt="another tenant").record
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_scored_prompt_is_computed_whole_and_its_pages_serve_others(llm: LLM) -> None:
    """Pages have no logits, so a prompt that is scored cannot use them."""
    prompt = "A long story about a fox. " * 20
    score: dict[str, Any] = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1}
    with Engine(llm) as engine, running(engine) as server:

        def cached(record: Any) -> int:
            return record["usage"]["prompt_tokens_details"]["cached_tokens"]

        first = server.complete(**score).record
        plain = server.complete(prompt=prompt, max_tokens=1).record
        again = server.complete(**score).record
        other = server.complete(prompt=prompt, max_tokens=1, cache_salt="another tenant").record
    assert [cached(record) for record in (first, again, other)] == [0, 0, 0]
    assert cached(plain) > plain["usage"]["prompt_tokens"] / 2
    known = again["choices"][0]["logprobs"]["token_logprobs"][1:]
    assert known == pytest.approx(first["choices"][0]["logprobs"]["token_logprobs"][1:], abs=1e-4)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_pages(server: RunningServer, stream: bool) -> None:
    engine = server.engine
    connection = send(server, prompt="Once", max_tokens=1900, stream=stream, ignore_eos=True, n=2)
    wait_until(lambda: engine.statistics().running == 2)
    reset(connection)
    wait_until(lambda: engine.statistics().running == 0)
    assert engine.statistics().pages_used == 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_beyond_its_time_limit_ends(llm: LLM, stream: bool) -> None:
    with Engine(llm) as engine, running(engine, request_timeout=0.2) as server:
        answer = server.complete(max_tokens=1900, ignore_eos=True, stream=stream)
        assert b'"code":"deadline"' in answer.body
        assert answer.status == (200 if stream else 503)
        assert engine.statistics().pages_used == 0


def test_a_strict_function_that_is_not_called_changes_no_answer(llm: LLM) -> None:
    grammar = text_and_calls({"f": {"type": "object", "properties": {"city": {"type": "string"}}}})
    sampling = Sampling(max_tokens=40)
    for question in QUESTIONS:
        assert llm.chat(question, sampling, response_format=grammar).text == llm.chat(question, sampling).text


def test_an_answer_that_was_cut_can_be_continued(server: RunningServer) -> None:
    whole = ask(server, QUESTIONS[0])["choices"][0]["message"]["content"]
    begun = whole[: whole.index(" ", len(whole) // 2)]
    turns = [{"role": "user", "content": QUESTIONS[0]}, {"role": "assistant", "content": begun}]
    rest = server.chat(messages=turns, max_tokens=40, continue_final_message=True).record["choices"][0]
    assert (begun + rest["message"]["content"]).startswith(whole)


def test_a_schema_is_followed(server: RunningServer) -> None:
    properties = {"name": {"type": "string", "maxLength": 8}, "old": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["name", "old"]}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    record = json.loads(ask(server, "Who are you?", response_format=form)["choices"][0]["message"]["content"])
    assert {name: type(value) for name, value in record.items()} == {"name": str, "old": bool}


DEEP: Any = {"type": "object"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/a"}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 9] * 10_001}}}},
        {"structured_outputs": {"regex": "(a+)+("}},
        {"structured_outputs": {"regex": "(?=a)b"}},
        {"structured_outputs": {"grammar": "start: missing"}},
    ],
)
def test_a_hostile_grammar_is_refused_and_the_next_request_is_answered(
    server: RunningServer, fields: dict[str, Any]
) -> None:
    answer = server.chat(**fields)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert server.chat().status == 200
