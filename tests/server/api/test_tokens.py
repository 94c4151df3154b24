"""Routes that count tokens, or make tokens of a text and a text of tokens, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from ...support.serving import chat_models
from ...support.serving.fake_engine import CONTEXT, FakeEngine
from ...support.serving.running import RunningServer, running, wait_until
from ..test_disconnects import reset, send
from ..test_waiting import slow_prompts

TEMPLATE = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING
USER = {"role": "user", "content": "Weather?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE))) as started:
        yield started


def post(server: RunningServer, path: str, **body: Any) -> Any:
    answer = server.request("POST", path, body)
    assert answer.status == 200, answer.body
    return answer.record


def test_anthropics_count_is_that_of_the_prompt(server: RunningServer) -> None:
    client = anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0)
    options: Any = {
        "model": "fake",
        "messages": [USER, {"role": "assistant", "content": "I look."}, USER],
        "system": "Be brief.",
        "tools": [{"name": "weather", "input_schema": PARAMETERS}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    counted = client.messages.count_tokens(**options).input_tokens
    assert counted == client.messages.create(**options, max_tokens=1).usage.input_tokens
    assert counted > client.messages.count_tokens(model="fake", messages=options["messages"]).input_tokens


def test_the_count_of_responses_is_that_of_the_prompt(server: RunningServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    tool = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
    options: Any = {"model": "fake", "input": [USER], "instructions": "Be brief.", "tools": [tool]}
    counted = client.responses.input_tokens.count(**options)
    assert counted.object == "response.input_tokens"
    answer = client.responses.create(**options, max_output_tokens=1)
    assert counted.input_tokens == answer.usage.input_tokens


def test_a_prompt_longer_than_the_context_is_counted(server: RunningServer) -> None:
    long = {"role": "user", "content": "word " * CONTEXT}
    assert post(server, "/v1/messages/count_tokens", messages=[long])["input_tokens"] > CONTEXT
    assert post(server, "/v1/responses/input_tokens", input=[long])["input_tokens"] > CONTEXT
    assert post(server, "/tokenize", messages=[long])["count"] > CONTEXT


def test_a_text_becomes_tokens_and_a_text_again(server: RunningServer) -> None:
    text = "Héllo wörld, 你好 👋"
    record = post(server, "/tokenize", model="fake", prompt=text, return_token_strs=True)
    assert list(record) == ["count", "max_model_len", "tokens", "token_strs"]
    assert record["tokens"] == server.engine.tokenizer.encode(text)
    assert (record["count"], record["max_model_len"]) == (len(record["tokens"]), CONTEXT)
    assert record["token_strs"][0] == server.engine.tokenizer.decode(record["tokens"][:1])
    assert post(server, "/tokenize", prompt=text)["token_strs"] is None
    assert post(server, "/detokenize", model="fake", tokens=record["tokens"]) == {"prompt": text}
    assert post(server, "/tokenize", prompt="")["tokens"] == []
    assert post(server, "/detokenize", tokens=[300] * CONTEXT)["prompt"]
    assert post(server, "/detokenize", tokens=[]) == {"prompt": ""}


def test_the_tokens_of_a_chat_are_those_of_its_prompt(server: RunningServer) -> None:
    chat: dict[str, Any] = {
        "messages": [USER, {"role": "assistant", "content": "Sunny"}],
        "tools": [FUNCTION],
        "chat_template_kwargs": {"enable_thinking": True},
    }
    for more in ({}, {"continue_final_message": True, "add_generation_prompt": False}):
        tokens = post(server, "/tokenize", **chat, **more)["tokens"]
        server.chat(**chat, **more)
        assert tuple(tokens) == server.engine.requests[-1].prompt_ids
        written = post(server, "/detokenize", tokens=tokens)["prompt"]
        assert written.endswith("Sunny" if more else "<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [USER]}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a" * 10**6}, "prompt"),
        ("/tokenize", {"prompt": "a", "tools": [FUNCTION]}, "tools"),
        ("/tokenize", {"prompt": "a", "continue_final_message": True}, "continue_final_message"),
        (
            "/tokenize",
            {"prompt": "a", "chat_template_kwargs": {"enable_thinking": True}},
            "chat_template_kwargs",
        ),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [USER], "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": [{"role": "x", "content": "a"}]}, "messages[0].role"),
        (
            "/tokenize",
            {"messages": [USER], "tools": [{"type": "x", "function": {"name": "f"}}]},
            "tools[0].type",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [10**6]}, "tokens"),
        ("/detokenize", {"tokens": [1] * (CONTEXT + 1)}, "tokens"),
        ("/v1/responses/input_tokens", {}, "input"),
    ],
)
def test_bad_input(server: RunningServer, path: str, body: dict[str, Any], param: str) -> None:
    answer = server.request("POST", path, body)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_an_unknown_model_is_not_found(server: RunningServer) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/v1/responses/input_tokens", {"input": "a"})):
        assert server.request("POST", path, {**body, "model": "other"}).status == 404
    anthropic_error = server.request("POST", "/v1/messages/count_tokens", {"model": "x", "messages": [USER]})
    assert anthropic_error.record["error"]["type"] == "not_found_error"


def test_a_text_gets_the_special_tokens_of_the_tokenizer() -> None:
    """The template of a chat writes them itself: two of them."""
    engine = FakeEngine(tokenizer=chat_models.tokenizer_that_begins(TEMPLATE))
    with running(engine) as server:
        plain = post(server, "/tokenize", prompt="Once", add_special_tokens=False)["tokens"]
        begin, *rest = post(server, "/tokenize", prompt="Once")["tokens"]
        assert (engine.tokenizer.decode([begin]), rest) == ("<|im_start|>", plain)
        assert server.complete().status == server.chat().status == 200
        assert [request.prompt_ids.count(begin) for request in engine.requests] == [1, 2]
        asked = {"prompt": "Once", "echo": True, "max_tokens": 1, "logprobs": 0}
        (echoed,) = post(server, "/v1/completions", **asked)["choices"]
        assert echoed["text"].startswith("Once")
        tokens, offsets = (echoed["logprobs"][name] for name in ("tokens", "text_offset"))
        assert (tokens[0], offsets[:2]) == ("<|im_start|>", [0, 0])
        assert [echoed["text"][place:][:1] for place in offsets[1:]] == [token[:1] for token in tokens[1:]]


@pytest.mark.parametrize("end", ["late", "left"])
def test_a_request_without_an_engine_waits_no_longer_than_others(end: str) -> None:
    engine, body = FakeEngine(), {"prompt": "a"}
    limit = 0.2 if end == "late" else None
    with running(engine, request_timeout=limit) as server, slow_prompts(engine) as gate:
        if end == "late":
            answer = server.request("POST", "/tokenize", body)
            assert (answer.status, answer.error["code"]) == (503, "deadline")
        else:
            connection = send(server, "/tokenize", **body)
            wait_until(lambda: gate.entered == 1)
            reset(connection)
            wait_until(lambda: server.server.lifecycle.in_flight == 0)
        assert (gate.entered, gate.passed) == (1, 0)
        gate.open()
