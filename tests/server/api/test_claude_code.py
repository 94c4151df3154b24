"""What Claude Code sends, as recorded in claude_code.json, is served, or refused in words that it knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import Answer, RunningServer, running

RECORD = json.loads(Path(__file__).with_name("claude_code.json").read_text())
REQUESTS = {request["name"]: request for request in RECORD["requests"]}
TOOLS = {tool["name"]: tool for tool in RECORD["tools"]}
REFUSED = {
    "files that are not text": "messages[3].content[0].content[0].type: Could not process image",
    "image of an MCP server": "messages[3].content[0].content[1].type: Could not process image",
    "web search": "tools[0].type: expected custom: this server has no tools of its own",
}
COUNTED = ("tokens", "tokens of tools")
ANSWERED = [name for name in REQUESTS if name not in (*REFUSED, *COUNTED)]
CALL = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls | wc -l"}}\n</tool_call>'
KEYS = ("x", "k")  # as recorded: a token in `authorization`, and a key in `x-api-key`


@pytest.fixture(scope="module", params=[chat_models.THINKING, ""], ids=["thinking", "without"])
def engine(request: pytest.FixtureRequest) -> FakeEngine:
    """Of a model with a switch for thinking, and of one without."""
    template = chat_models.TOOLS + chat_models.MESSAGES + request.param
    return FakeEngine(tokenizer=chat_models.tokenizer_with(template), context=8192)


@pytest.fixture(scope="module")
def server(engine: FakeEngine) -> Iterator[RunningServer]:
    """The model has all names that the client asks for."""
    names = {request["body"]["model"] for request in REQUESTS.values()}
    with running(dict.fromkeys(names, engine), api_keys=KEYS) as started:
        yield started


def body_of(name: str) -> dict[str, Any]:
    """The recorded body with its tools."""
    body = REQUESTS[name]["body"]
    if "tools" not in body:
        return body
    named = [{"name": tool} if isinstance(tool, str) else tool for tool in body["tools"]]
    return {**body, "tools": [{**TOOLS.get(tool["name"], {}), **tool} for tool in named]}


def send(server: RunningServer, name: str, path: str | None = None) -> Answer:
    headers = {**RECORD["common"], **REQUESTS[name]["headers"]}
    return server.request("POST", path or REQUESTS[name]["path"], body_of(name), headers)


def message(answer: Answer) -> dict[str, Any]:
    """Of a whole answer, or of the events of a stream."""
    assert answer.status == 200, answer.body
    if answer.headers["content-type"] == "application/json":
        return answer.record
    parts = [part for part in answer.body.decode().split("\n\n") if part]
    start, *events, delta, stop = [json.loads(part.partition("\ndata: ")[2]) for part in parts]
    assert (start["type"], delta["type"], stop["type"]) == ("message_start", "message_delta", "message_stop")
    content = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    for event in events:
        if event["type"] == "content_block_delta":
            block, added = content[event["index"]], event["delta"]
            if added["type"] == "text_delta":
                block["text"] += added["text"]
            else:
                block["input"] = json.loads(added["partial_json"])
    others = {name: value for name, value in delta.items() if name not in ("type", "delta", "usage")}
    usage = {**start["message"]["usage"], **delta["usage"]}
    return {**start["message"], **delta["delta"], **others, "content": content, "usage": usage}


def texts(body: dict[str, Any]) -> Iterator[str]:
    """What the model has to read of a request, in order; the first block of `system` is for Anthropic."""
    yield from (block["text"] for block in body["system"][1:])
    for turn in body["messages"]:
        blocks = turn["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            match block["type"]:
                case "text":
                    yield block["text"]
                case "tool_use":
                    yield json.dumps(block["name"])
                case "tool_result":
                    yield "tool\n" + ("Error: " if block.get("is_error") else "")
                    result = block["content"]
                    yield result if isinstance(result, str) else result[0]["tool_name"]


@pytest.mark.parametrize("name", ANSWERED)
def test_the_model_reads_a_request_in_order_and_answers(
    server: RunningServer, engine: FakeEngine, name: str
) -> None:
    engine.script = '{"title": "Hi"}' if name == "title" else "Hi."
    answered = message(send(server, name))
    assert [block["text"] for block in answered["content"]] == [engine.script]
    assert answered["stop_reason"] == "end_turn"
    body = body_of(name)
    assert answered.get("context_management") == (
        {"applied_edits": []} if "context_management" in body else None
    )
    asked = engine.requests[-1]
    written = engine.tokenizer.decode(asked.prompt_ids)
    assert "x-anthropic-billing-header" not in written
    assert all(json.dumps(tool["name"]) in written for tool in body.get("tools", []))
    place = 0
    for text in texts(body):
        place = written.index(text, place) + len(text)
    assert (asked.grammar is not None) == (name == "title")


def test_a_call_of_a_tool(server: RunningServer, engine: FakeEngine) -> None:
    engine.script = CALL
    answered = message(send(server, "question"))
    assert answered["stop_reason"] == "tool_use"
    ((kind, name, given),) = [(block["type"], block["name"], block["input"]) for block in answered["content"]]
    assert (kind, name, given) == ("tool_use", "Bash", {"command": "ls | wc -l"})


def test_a_conversation_may_end_with_a_call(server: RunningServer, engine: FakeEngine) -> None:
    """Without its result: only a text is continued."""
    call = {"type": "tool_use", "id": "1", "name": "Bash", "input": {}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [call]}]
    engine.script = "Yes."
    body = {"max_tokens": 9, "messages": messages}
    answered = message(server.request("POST", "/v1/messages", body, REQUESTS["question"]["headers"]))
    assert [block["text"] for block in answered["content"]] == ["Yes."]


def test_the_classifier_of_calls_stops_at_its_string(server: RunningServer, engine: FakeEngine) -> None:
    engine.script = "<block>no</block> Reasons follow."
    answered = message(send(server, "classifier"))
    assert answered["content"][0]["text"] == "<block>no"
    assert (answered["stop_reason"], answered["stop_sequence"]) == ("stop_sequence", "</block>")


@pytest.mark.parametrize("name", [*COUNTED, "question", "results of tools"])
def test_tokens_are_counted(server: RunningServer, engine: FakeEngine, name: str) -> None:
    counted = send(server, name, "/v1/messages/count_tokens?beta=true").record
    body = {"max_tokens": 1, **body_of(name), "stream": False}
    headers = {**RECORD["common"], **REQUESTS[name]["headers"]}
    usage = server.request("POST", "/v1/messages?beta=true", body, headers).record["usage"]
    assert counted == {"input_tokens": usage["input_tokens"]}


@pytest.mark.parametrize(("name", "sentence"), REFUSED.items())
def test_what_is_refused(server: RunningServer, name: str, sentence: str) -> None:
    """The client knows Anthropic's words for images and documents, and asks again without them."""
    answer = send(server, name)
    assert (answer.status, answer.record["error"]["type"]) == (400, "invalid_request_error")
    assert answer.record["error"]["message"].startswith(sentence)


def test_a_document_is_refused_in_words_that_the_client_knows(server: RunningServer) -> None:
    body = body_of("files that are not text")
    *before, final = body["messages"]
    body = {**body, "messages": [*before, {**final, "content": final["content"][1:]}]}
    answer = server.request("POST", "/v1/messages", body, {"x-api-key": "k"})
    assert answer.record["error"]["message"].startswith("messages[3].content[1].type: Could not process PDF")


def test_a_prompt_that_is_too_long(
    server: RunningServer, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client looks for these words, and for the numbers, before it makes the conversation shorter."""
    monkeypatch.setattr(engine, "context", 1000)
    answer = send(server, "question")
    assert answer.status == 400
    assert re.search(r"prompt is too long: \d+ tokens > 1000", answer.record["error"]["message"])


def test_before_its_first_question_the_client_asks_whether_the_server_is_there(server: RunningServer) -> None:
    answer = server.request("HEAD", "/", headers={"accept": "*/*", "user-agent": "Bun/1.4.0"})
    assert (answer.status, answer.body) == (200, b"")
