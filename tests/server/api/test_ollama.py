"""Ollama's interface: what its fields become, what it refuses, and the lines of its streams."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from ...support.serving import chat_models
from ...support.serving.fake_engine import CONTEXT, FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import Answer, RunningServer, running

USER: Any = {"role": "user", "content": "Hello"}


def chat(server: RunningServer, **fields: Any) -> Answer:
    return server.request("POST", "/api/chat", {"messages": [USER], "stream": False, **fields})


def generate(server: RunningServer, **fields: Any) -> Answer:
    return server.request("POST", "/api/generate", {"prompt": "Hello", "stream": False, **fields})


def lines(answer: Answer) -> list[Any]:
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.mark.parametrize(
    ("path", "given", "text"),
    [
        ("/api/chat", {"messages": [USER]}, lambda record: record["message"]["content"]),
        ("/api/generate", {"prompt": "Hello"}, lambda record: record["response"]),
        ("/api/generate", {"prompt": "Hello", "raw": True}, lambda record: record["response"]),
    ],
)
def test_a_stream_is_the_default_and_its_lines_are_the_whole_answer(
    any_server: RunningServer, path: str, given: dict[str, Any], text: Any
) -> None:
    given = {**given, "options": {"temperature": 0, "num_predict": 5}}
    streamed = lines(any_server.request("POST", path, given))
    whole = any_server.request("POST", path, {**given, "stream": False}).record
    assert "".join(map(text, streamed)) == text(whole) != ""
    assert [line["done"] for line in streamed] == [False] * (len(streamed) - 1) + [True]
    last = streamed[-1]
    for name in ("model", "done_reason", "prompt_eval_count", "eval_count"):
        assert last[name] == whole[name]
    assert (last["model"], last["done_reason"], last["eval_count"]) == ("fake", "length", 5)
    for end in (last, whole):
        assert end["total_duration"] == end["prompt_eval_duration"] + end["eval_duration"]
        assert min(end["prompt_eval_duration"], end["eval_duration"], end["prompt_eval_count"]) > 0
        assert end["load_duration"] == 0
    for line in (*streamed, whole):
        assert datetime.fromisoformat(line["created_at"]).year >= 2025
        assert "message" not in line or line["message"]["role"] == "assistant"


def test_an_answer_has_its_thoughts_and_calls() -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    template = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING
    engine = FakeEngine(
        tokenizer=chat_models.tokenizer_with(template), script=f"<think>\nHm.\n</think>\n{call}\n{call}"
    )
    tool = {"type": "function", "function": {"name": "weather"}}
    with running(engine) as server:
        whole = chat(server, think=True, tools=[tool]).record["message"]
        streamed = lines(chat(server, think=True, tools=[tool], stream=True))
    assert whole["thinking"] == "".join(line["message"].get("thinking", "") for line in streamed) == "Hm."
    for calls in (
        whole["tool_calls"],
        [c for line in streamed for c in line["message"].get("tool_calls", [])],
    ):
        functions = [{"index": n, "name": "weather", "arguments": {"city": "Paris"}} for n in range(2)]
        assert [call["function"] for call in calls] == functions
        assert len({call["id"] for call in calls if call["id"].startswith("call_")}) == 2


def test_the_prompt_is_that_of_a_chat_unless_it_is_raw(server: RunningServer) -> None:
    system = {"role": "system", "content": "Be brief."}
    server.chat(messages=[system, USER])
    expected = server.engine.requests[-1].prompt_ids
    chat(server, messages=[system, USER])
    assert server.engine.requests[-1].prompt_ids == expected
    generate(server, system="Be brief.")
    assert server.engine.requests[-1].prompt_ids == expected
    generate(server, raw=True)
    assert server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids) == "Hello"


@pytest.mark.parametrize("ask", [chat, generate, lambda *a, **b: generate(*a, raw=True, **b)])
def test_options_reach_the_engine(server: RunningServer, ask: Any) -> None:
    options = {
        "temperature": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.25, "seed": 3, "num_predict": 4,
        "stop": ["x"], "repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.25,
        "num_thread": 2, "num_keep": 4, "mirostat": 0, "repeat_last_n": -1,
    }  # fmt: skip
    assert ask(server, options=options).status == 200
    sampling = server.engine.requests[-1].sampling
    assert (sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 7, 0.75, 0.25)
    assert (sampling.seed, sampling.max_tokens, sampling.stop) == (3, 4, ("x",))
    assert (sampling.repetition_penalty, sampling.presence_penalty) == (1.5, 0.5)
    assert sampling.frequency_penalty == 0.25


def test_defaults_are_those_of_ollama(server: RunningServer) -> None:
    chat(server)
    sampling = server.engine.requests[-1].sampling
    assert (sampling.temp, sampling.top_k, sampling.top_p) == (0.8, 40, 0.9)
    assert (sampling.seed, sampling.repetition_penalty) == (None, None)
    chat(server, options={"top_k": 0, "seed": -1, "repeat_penalty": 1.5, "repeat_last_n": 0})
    sampling = server.engine.requests[-1].sampling
    assert (sampling.top_k, sampling.seed, sampling.repetition_penalty) == (None, None, None)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, CONTEXT),
        ({"num_ctx": 100}, 100),
        ({"num_ctx": 10**6}, CONTEXT),
        ({"num_ctx": 100, "num_predict": -2}, 100),
        ({"num_ctx": 100, "num_predict": 500}, 100),
    ],
)
def test_an_answer_may_fill_the_context(server: RunningServer, options: dict[str, int], limit: int) -> None:
    for ask in (chat, generate, lambda server, **fields: generate(server, raw=True, **fields)):
        server.engine.script = "Yes."
        ask(server, options=options)
        server.engine.script = None
        request = server.engine.requests[-1]
        assert len(request.prompt_ids) + request.sampling.max_tokens == limit
        chat(server, options={**options, "num_predict": 7})
        assert server.engine.requests[-1].sampling.max_tokens == 7


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(("form", "others"), [("json", True), (SCHEMA, False)])
def test_an_answer_has_the_format(server: RunningServer, form: Any, others: bool) -> None:
    texts = {'{"city": "Paris"}': True, '{"number": 5}': others, "Paris": False}
    for ask in (chat, generate, lambda server, **fields: generate(server, raw=True, **fields)):
        ask(server, format=form, options={"num_predict": 9})
        grammar = server.engine.requests[-1].grammar
        assert {text: follows(grammar, text) for text in texts} == texts


def test_log_probabilities(server: RunningServer) -> None:
    given = {"options": {"num_predict": 3, "temperature": 0}, "logprobs": True, "top_logprobs": 2}
    for record in (chat(server, **given).record, generate(server, **given).record):
        assert [len(entry["top_logprobs"]) for entry in record["logprobs"]] == [2, 2, 2]
        assert all(entry["logprob"] == -0.5 for entry in record["logprobs"])


@pytest.mark.parametrize("fields", [{}, {"keep_alive": "5m"}, {"keep_alive": 0}])
def test_a_request_without_a_prompt_finds_the_model_loaded(
    server: RunningServer, fields: dict[str, Any]
) -> None:
    before = len(server.engine.requests)
    for path in ("/api/chat", "/api/generate"):
        whole = server.request("POST", path, {"model": "fake", "stream": False, **fields}).record
        (line,) = lines(server.request("POST", path, {"model": "fake", **fields}))
        for record in (whole, line):
            assert (record["done"], record["done_reason"], record["model"]) == (True, "load", "fake")
    assert len(server.engine.requests) == before


@pytest.mark.parametrize(
    ("ask", "fields", "message"),
    [
        (chat, {"model": "other"}, "model: no such model"),
        (chat, {"messages": [{**USER, "images": ["aGk="]}]}, "messages[0].images: expected none"),
        (chat, {"messages": [{**USER, "role": "x"}]}, "messages[0].role: expected one of"),
        (generate, {"images": ["aGk="]}, "images: expected none"),
        (generate, {"suffix": "x"}, "suffix: this server"),
        (generate, {"template": "x"}, "template: this server"),
        (generate, {"context": [1]}, "context: this server"),
        (generate, {"raw": True, "system": "x"}, "system: expected none beside raw"),
        (generate, {"raw": True, "think": True}, "think: expected none beside raw"),
        (generate, {"raw": True, "logprobs": True}, "logprobs: expected none beside raw"),
        (chat, {"options": {"typical_p": 0.5}}, "options.typical_p: expected 1"),
        (chat, {"options": {"tfs_z": 2}}, "options.tfs_z: expected 1"),
        (generate, {"raw": True, "top_logprobs": 2}, "top_logprobs: expected none beside raw"),
        (generate, {"raw": True, "options": {"stop": ["x"] * 100}}, "options.stop: got 100 strings"),
        (chat, {"format": "xml"}, "format: expected json or"),
        (chat, {"format": {"type": "x"}}, "grammar: got a json_schema"),
        (chat, {"think": True}, "think: the model"),
        (chat, {"think": "a lot"}, "think: expected true"),
        (chat, {"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools: the model"),
        (chat, {"options": {"temperature": 3}}, "options.temperature: "),
        (chat, {"options": {"num_predict": 0}}, "options.num_predict: expected at least 1"),
        (chat, {"options": {"num_predict": -3}}, "options.num_predict: "),
        (chat, {"options": {"num_ctx": 2}}, "the prompt is too long: 9 tokens > 2 tokens of context"),
        (chat, {"options": {"num_ctx": 9}}, "the prompt is too long: 9 tokens"),
        (chat, {"options": {"mirostat": 1}}, "options.mirostat: expected 0"),
        (
            chat,
            {"options": {"repeat_penalty": 1.1, "repeat_last_n": 64}},
            "options.repeat_last_n: expected -1",
        ),
        (chat, {"options": {"tempreature": 1}}, "options: object contains unknown field `tempreature`"),
        (chat, {"options": {"stop": ["x"] * 100}}, "options.stop: got 100 strings"),
    ],
)
def test_what_is_refused(server: RunningServer, ask: Any, fields: dict[str, Any], message: str) -> None:
    answer = ask(server, **fields)
    assert answer.status == (404 if "model" in fields else 400)
    assert answer.record == {"error": answer.record["error"]}
    assert answer.record["error"].startswith(message)


def test_an_error_in_a_stream_is_its_last_line() -> None:
    with running(FakeEngine(failure=ValueError("an internal detail"))) as server:
        answer = server.request("POST", "/api/chat", {"messages": [USER]})
        *_, last = lines(answer)
        assert list(last) == ["error"]
        assert last["error"].startswith("the server failed to answer")
        assert b"detail" not in answer.body


def test_every_error_below_its_paths_has_its_shape() -> None:
    with running(FakeEngine(), api_keys=("secret",)) as server:
        for path in ("/api/tags", "/api/version", "/api/chat"):
            assert list(server.get(path).record) == ["error"]
        answer = server.get("/api/unknown", authorization="Bearer secret")
        assert (answer.status, list(answer.record)) == (404, ["error"])


def test_clients_may_name_any_type_but_pages_of_a_browser_may_not(server: RunningServer) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for path, given in (("/api/chat", {"messages": [USER]}), ("/api/show", {"model": "fake"})):
        assert server.request("POST", path, given, kind).status == 200
        page = server.request("POST", path, given, {**kind, "origin": server.url})
        assert (page.status, list(page.record)) == (415, ["error"])
    assert server.request("POST", "/v1/chat/completions", {"messages": [USER]}, kind).status == 415


def test_a_slow_stream_stays_readable() -> None:
    with running(FakeEngine(delay=0.05), keep_alive_comment=0.01) as server:
        answer = server.request("POST", "/api/chat", {"messages": [USER], "options": {"num_predict": 2}})
        assert b" {" in answer.body
        assert lines(answer)[-1]["eval_count"] == 2


def test_what_is_known_of_models() -> None:
    template = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING
    able = FakeEngine(tokenizer=chat_models.tokenizer_with(template))
    with running({"plain": FakeEngine(), "able": able}) as server:
        tags = server.get("/api/tags").record["models"]
        assert [(tag["name"], tag["model"], tag["size"]) for tag in tags] == [
            ("plain", "plain", 1000),
            ("able", "able", 1000),
        ]
        for name, capabilities in (("plain", []), ("able", ["tools", "thinking"])):
            for field in ("model", "name"):
                shown = server.request("POST", "/api/show", {field: f"{name}:latest"}).record
                assert shown["capabilities"] == ["completion", *capabilities]
                assert shown["model_info"]["fake.context_length"] == CONTEXT
        assert server.request("POST", "/api/show", {"model": "other"}).status == 404
        assert server.get("/api/version").record["version"].count(".") == 2


def test_the_size_is_that_of_the_weights() -> None:
    from tiny_llm.llm import LLM
    from tiny_llm.loading.find import EMBEDDED

    llm = LLM("tiny")
    file = EMBEDDED / "model.safetensors"
    assert 0.9 < llm.weight_bytes / file.stat().st_size < 1.1
    assert llm.family == "qwen2"
