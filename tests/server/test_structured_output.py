"""Structured output: which grammar reaches the engine, that it is the content's, and who waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tiny_llm.errors import ArgumentError
from tiny_llm.sampling.grammar import Grammar, find_grammar, start_grammar
from tiny_llm.sampling.grammar import compiler as grammar_compiler
from tiny_llm.sampling.grammar.compiler import TRIALS
from tiny_llm.server.waiting import Threads

from ..support.serving import chat_models
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.grammars import follows
from ..support.serving.running import RunningServer, running, wait_until
from .test_waiting import slow_grammars


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(FakeEngine()) as started:
        yield started


@pytest.mark.parametrize(
    ("template", "fields", "thought"),
    [
        (chat_models.THINKING, {}, ""),
        (
            chat_models.THINKING,
            {"chat_template_kwargs": {"enable_thinking": True}},
            "<think>\nHm.\n</think>\n\n",
        ),
        (chat_models.ALWAYS_THINKING, {}, "Hm.\n</think>\n\n"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_is_that_of_the_content_with_and_without_thinking(
    template: str, fields: dict[str, Any], thought: str, stream: bool
) -> None:
    tokenizer = chat_models.tokenizer_with(chat_models.MESSAGES + template)
    said = '{"a": 5}'
    engine = FakeEngine(tokenizer=tokenizer, script=thought + said)
    with running(engine) as server:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
        answer = server.chat(max_tokens=99, response_format=form, stream=stream, **fields)
        grammar = engine.requests[-1].grammar
        if stream:
            deltas = [part["delta"] for event in answer.events for part in event["choices"]]
            names = ("reasoning_content", "content")
            reasoning, content = ("".join(each.get(name, "") for each in deltas) for name in names)
        else:
            message = answer.record["choices"][0]["message"]
            reasoning, content = message.get("reasoning_content", ""), message["content"]
    assert (reasoning, content) == ("Hm." if thought else "", said)
    assert follows(grammar, thought + said)
    assert not follows(grammar, thought + "No.")
    assert follows(grammar, said) == (not thought)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Grammar.json_object()),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            Grammar.json_schema(SCHEMA),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, Grammar.json_schema(SCHEMA)),
        ({"structured_outputs": {"regex": "a+"}}, Grammar.regex("a+")),
        ({"structured_outputs": {"grammar": 'start: "x"'}}, Grammar.lark('start: "x"')),
        ({"structured_outputs": {"choice": ["a.b", "c d"]}}, Grammar.regex(r"a\.b|c d")),
        ({"structured_outputs": {"json_object": True}}, Grammar.json_object()),
    ],
)
def test_a_grammar_reaches_the_engine(server: RunningServer, fields: dict[str, Any], grammar: Any) -> None:
    for answer in (server.chat(**fields), server.complete(**fields)):
        assert answer.status == 200
        assert server.engine.requests[-1].grammar == grammar


def test_a_slow_grammar_delays_no_other_request() -> None:
    """As many as there are threads of any kind are compiled, for as long as the test runs."""
    engine = FakeEngine()
    with running(engine) as server, slow_grammars(engine) as gate, ThreadPoolExecutor(8) as clients:
        grammar = {"structured_outputs": {"regex": "slow"}}
        slow = [clients.submit(lambda: server.chat(**grammar).status) for _ in range(8)]
        wait_until(lambda: server.server.lifecycle.in_flight == 8)
        assert server.chat().status == 200
        gate.open()
        assert [each.result() for each in slow] == [200] * 8


def test_a_known_grammar_waits_for_no_other(threads_of: dict[str, Threads]) -> None:
    """Nor for a refused one: only new ones are compiled by the few threads."""
    engine = FakeEngine()
    known, refused = ({"structured_outputs": {"regex": text}} for text in ("(known)", "(refused"))
    start_grammar(engine.tokenizer, Grammar.regex("(known)"))
    with pytest.raises(ArgumentError):
        start_grammar(engine.tokenizer, Grammar.regex("(refused"))
    with (
        running(engine, max_grammars=2) as server,
        slow_grammars(engine) as gate,
        ThreadPoolExecutor(2) as clients,
    ):
        unknown = {"structured_outputs": {"regex": "new"}}
        new = [clients.submit(lambda: server.chat(**unknown).status) for _ in range(2)]
        wait_until(lambda: gate.entered == 1 and threads_of["grammar"]._calls == 2)
        assert [server.chat(**fields).status for fields in (known, refused)] == [200, 400]
        beyond = server.chat(**unknown)
        assert (beyond.status, beyond.error["code"]) == (429, "grammar_queue_full")
        assert beyond.headers["retry-after"] == "1"
        gate.open()
        assert [each.result() for each in new] == [200] * 2


def test_a_grammar_that_has_no_time_because_others_wait_may_come_again(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it would have more: it is not wrong, and not remembered as if it were. A wrong one is refused."""
    monkeypatch.setattr(TRIALS, "_in_line", 1)
    assert server.chat(structured_outputs={"regex": "(wrong"}).status == 400
    monkeypatch.setattr(grammar_compiler, "CROWDED_SECONDS", 0.2)
    for _ in range(2):
        answer = server.chat(structured_outputs={"json": ENDLESS})
        assert (answer.status, answer.error["code"]) == (429, "grammar_queue_busy")
        assert answer.error["type"] == "rate_limit_error"
        assert answer.headers["retry-after"] == "1"
        assert answer.error["message"].startswith("the grammar takes more than 0.2 s to compile")
    assert find_grammar(server.engine.tokenizer, Grammar.json_schema(ENDLESS)) is None
    with pytest.raises(ArgumentError, match="does not compile"):
        find_grammar(server.engine.tokenizer, Grammar.regex("(wrong"))


# Each pattern of an intersection doubles the work.
ENDLESS = {"allOf": [{"type": "string", "pattern": f".*b.{{{length}}}"} for length in range(10, 60)]}
HOSTILE = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "unknownKeyword": 1}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": HOSTILE}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"unknownKeyword": 1}}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"] * 1025}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
    ],
)
def test_a_wrong_grammar_is_refused(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    answer = server.chat(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)
