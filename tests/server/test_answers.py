"""Answers of both routes: their shape, and streams that say the same as whole answers."""

from __future__ import annotations

from typing import Any

import pytest

from ..support.serving.fake_engine import FakeEngine, embedded_tokenizer
from ..support.serving.running import RunningServer, running

FIELDS: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"temperature": 0.7, "seed": 5, "n": 2},
    {"max_tokens": 100},
]


def joined_chat(events: list[Any]) -> list[Any]:
    """The choices that the chunks of a chat stream make up."""
    choices: dict[int, Any] = {}
    for chunk in events:
        for part in chunk["choices"]:
            index, delta = part["index"], part["delta"]
            choice = choices.setdefault(
                index, {"index": index, "message": {"refusal": None}, "logprobs": None, "finish_reason": None}
            )
            for name, text in delta.items():
                if name == "role":
                    assert "role" not in choice["message"], "the role comes once, first"
                    assert choice["message"] == {"refusal": None}
                choice["message"][name] = choice["message"].get(name, "") + text
            if part["logprobs"]:
                choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
                choice["logprobs"]["content"] += part["logprobs"]["content"]
            assert choice["finish_reason"] is None, "nothing follows the end"
            choice["finish_reason"] = part["finish_reason"]
    return [choices[index] for index in sorted(choices)]


def joined_completion(events: list[Any]) -> list[Any]:
    choices: dict[int, Any] = {}
    for chunk in events:
        for part in chunk["choices"]:
            whole = choices.setdefault(part["index"], {**part, "text": "", "logprobs": None})
            whole["text"] += part["text"]
            whole["finish_reason"] = part["finish_reason"]
            if part["logprobs"] and whole["logprobs"]:
                for name, values in part["logprobs"].items():
                    whole["logprobs"][name] += values
            else:
                whole["logprobs"] = part["logprobs"] or whole["logprobs"]
    return [choices[index] for index in sorted(choices)]


@pytest.mark.parametrize(
    "fields", [*FIELDS, {"logprobs": True, "top_logprobs": 3, "n": 2}, {"logprobs": True}]
)
def test_a_chat_stream_says_what_the_whole_answer_says(server: RunningServer, fields: dict[str, Any]) -> None:
    whole = server.chat(**fields).record
    events = server.chat(**fields, stream=True).events
    assert joined_chat(events) == whole["choices"]
    assert len(whole["choices"]) == fields.get("n", 1)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1


@pytest.mark.parametrize(
    "fields",
    [*FIELDS, {"logprobs": 2}, {"logprobs": 0, "n": 2}, {"echo": True, "n": 2}, {"prompt": ["a", "b"]}],
)
def test_a_completion_stream_says_what_the_whole_answer_says(
    server: RunningServer, fields: dict[str, Any]
) -> None:
    whole = server.complete(**fields).record
    events = server.complete(**fields, stream=True).events
    assert joined_completion(events) == whole["choices"]
    assert {event["object"] for event in events} == {whole["object"]} == {"text_completion"}


def test_a_whole_chat_answer(server: RunningServer) -> None:
    record = server.chat(model="fake", temperature=0).record
    assert record["object"] == "chat.completion"
    assert record["model"] == "fake"
    (choice,) = record["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    prompt = len(server.engine.requests[-1].prompt_ids)
    assert record["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 8,
        "total_tokens": prompt + 8,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_the_usage_is_the_last_chunk_if_asked_for(server: RunningServer) -> None:
    *events, last = server.chat(stream=True, stream_options={"include_usage": True}, n=2).events
    assert {event["usage"] for event in events} == {None}
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 16
    assert last["usage"]["prompt_tokens"] == len(server.engine.requests[-1].prompt_ids), "n counts it once"
    assert all("usage" not in event for event in server.chat(stream=True).events)


def test_log_probabilities_name_tokens_and_their_bytes(server: RunningServer) -> None:
    entries = server.chat(logprobs=True, top_logprobs=2).record["choices"][0]["logprobs"]["content"]
    assert len(entries) == 8
    for entry in entries:
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]
        assert entry["top_logprobs"][0] == {name: entry[name] for name in ("token", "logprob", "bytes")}
        assert len(entry["top_logprobs"]) == 2


def test_log_probabilities_of_a_completion_are_lists_with_places_in_the_text(server: RunningServer) -> None:
    choice = server.complete(logprobs=2).record["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    for token, place in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"].startswith(token, place)
    assert all(len(top) == 2 for top in logprobs["top_logprobs"])


def test_a_stop_string_ends_the_answer_before_it(server: RunningServer) -> None:
    text = server.complete().record["choices"][0]["text"]
    choice = server.complete(stop=[text[5:9]]).record["choices"][0]
    assert choice["text"] == text[:5]
    assert choice["finish_reason"] == "stop"


def test_echo_repeats_the_prompt(server: RunningServer) -> None:
    alone = server.complete().record["choices"][0]["text"]
    assert server.complete(echo=True).record["choices"][0]["text"] == "Once" + alone
    requests = len(server.engine.requests)
    record = server.complete(echo=True, max_tokens=0, n=2).record
    assert [choice["text"] for choice in record["choices"]] == ["Once", "Once"]
    assert record["usage"]["completion_tokens"] == 0
    assert len(server.engine.requests) == requests, "the engine is not asked"


def test_every_prompt_of_a_list_gets_n_choices(server: RunningServer) -> None:
    record = server.complete(prompt=["a", "b c"], n=2, temperature=0).record
    assert [choice["index"] for choice in record["choices"]] == [0, 1, 2, 3]
    second = server.complete(prompt="b c", n=2, temperature=0).record["choices"]
    assert [choice["text"] for choice in record["choices"][2:]] == [choice["text"] for choice in second]


def test_fields_reach_the_engine(server: RunningServer) -> None:
    server.chat(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=-1, repetition_penalty=1.1, stop="x",
        max_tokens=3, n=2, logprobs=True, top_logprobs=4, cache_salt="s",
    )  # fmt: skip
    request = server.engine.requests[-1]
    sampling = request.sampling
    assert (sampling.temp, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 40, 0.1)
    assert (sampling.seed, sampling.repetition_penalty, sampling.stop, sampling.max_tokens) == (
        -1,
        1.1,
        ("x",),
        3,
    )
    assert (request.n, request.logprobs, request.salt) == (2, 4, "s")


def test_defaults_are_those_of_openai(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    server.request("POST", "/v1/chat/completions", body)
    request = server.engine.requests[-1]
    assert (request.sampling.temp, request.sampling.top_p, request.n, request.logprobs) == (
        1.0,
        None,
        1,
        None,
    )
    assert request.sampling.max_tokens == server.engine.context - len(request.prompt_ids)
    server.request("POST", "/v1/completions", {"prompt": "Once"})
    assert server.engine.requests[-1].sampling.max_tokens == 16


def test_messages_are_rendered_by_the_chat_template(server: RunningServer) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
    ]
    server.chat(messages=messages)
    written = embedded_tokenizer().decode(server.engine.requests[-1].prompt_ids)
    assert written == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_models_are_listed_with_their_context(server: RunningServer) -> None:
    (card,) = server.get("/v1/models").record["data"]
    assert (card["id"], card["object"], card["context_length"]) == ("fake", "model", 2048)
    assert server.get("/v1/models/fake").record == card


def test_several_models_answer_under_their_names() -> None:
    first, second = FakeEngine(script="first"), FakeEngine(script="second")
    with running({"a": first, "org/b": second}) as server:
        answers = [server.chat(model=name).record for name in ("org/b", "a")]
        assert [answer["choices"][0]["message"]["content"] for answer in answers] == ["second", "first"]
        assert server.chat().record["model"] == "a", "the first is the default"
        assert server.chat(model="c").error["code"] == "model_not_found"
        assert server.get("/v1/models/org/b").record["id"] == "org/b"
        assert len(server.get("/v1/models").record["data"]) == 2
