"""Answers of both routes: their shape, and streams that say the same as whole answers. With every engine."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tiny_llm.engine import Event
from tiny_llm.generation.result import TokenLogprobs
from tiny_llm.server.api.chat import ChatChoice, chat_logprobs
from tiny_llm.server.api.completions import CompletionLogprobs
from tiny_llm.server.api.pieces import AnswerReader

from ..support.serving.fake_engine import embedded_tokenizer
from ..support.serving.running import RunningServer

# Of the message "Hello", as the embedded model's template writes it.
HELLO_TOKENS = len(embedded_tokenizer().encode("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"))
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
def test_a_chat_stream_says_what_a_whole_answer_says(
    any_server: RunningServer, fields: dict[str, Any]
) -> None:
    whole = any_server.chat(**fields).record
    events = any_server.chat(**fields, stream=True).events
    assert joined_chat(events) == whole["choices"]
    assert len(whole["choices"]) == fields.get("n", 1)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1


@pytest.mark.parametrize(
    "fields",
    [
        *FIELDS,
        {"logprobs": 2},
        {"logprobs": 0, "n": 2},
        {"echo": True, "n": 2},
        {"echo": True, "logprobs": 1, "n": 2},
        {"prompt": ["a", "b"]},
    ],
)
def test_a_completion_stream_says_what_a_whole_answer_says(
    any_server: RunningServer, fields: dict[str, Any]
) -> None:
    whole = any_server.complete(**fields).record
    events = any_server.complete(**fields, stream=True).events
    assert joined_completion(events) == whole["choices"]
    assert {event["object"] for event in events} == {whole["object"]} == {"text_completion"}


def test_a_whole_chat_answer(any_server: RunningServer) -> None:
    record = any_server.chat(model="fake").record
    assert record["object"] == "chat.completion"
    assert record["model"] == "fake"
    (choice,) = record["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    prompt = HELLO_TOKENS
    assert record["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 8,
        "total_tokens": prompt + 8,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_the_usage_has_what_was_cached_of_the_prompts(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine, "cached", 3)
    prompts = ["a prompt that is long enough", "and another one that is, too"]
    whole = server.complete(prompt=prompts).record["usage"]
    assert whole["prompt_tokens_details"] == {"cached_tokens": 6}
    *_, last = server.complete(prompt=prompts, stream=True, stream_options={"include_usage": True}).events
    assert last["usage"] == whole
    assert server.chat(n=2).record["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_the_usage_is_the_last_chunk_if_asked_for(any_server: RunningServer) -> None:
    *events, last = any_server.chat(stream=True, stream_options={"include_usage": True}, n=2).events
    assert {event["usage"] for event in events} == {None}
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 16
    assert last["usage"]["prompt_tokens"] == HELLO_TOKENS, "n counts it once"
    for fields in ({}, {"stream_options": {"include_usage": False}}):
        assert all("usage" not in event for event in any_server.chat(stream=True, **fields).events)


def test_log_probabilities_name_tokens_and_their_bytes(any_server: RunningServer) -> None:
    entries = any_server.chat(logprobs=True, top_logprobs=2).record["choices"][0]["logprobs"]["content"]
    assert len(entries) == 8
    for entry in entries:
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]
        assert entry["top_logprobs"][0] == {name: entry[name] for name in ("token", "logprob", "bytes")}
        assert len(entry["top_logprobs"]) == 2


def test_log_probabilities_of_a_completion_have_places_in_the_text(
    any_server: RunningServer,
) -> None:
    choice = any_server.complete(logprobs=2).record["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    for token, place in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"].startswith(token, place)
    assert all(len(top) == 2 for top in logprobs["top_logprobs"])


def test_a_stop_string_ends_the_answer_before_it(any_server: RunningServer) -> None:
    text = any_server.complete().record["choices"][0]["text"]
    choice = any_server.complete(stop=[text[5:9]]).record["choices"][0]
    assert choice["text"] == text[:5]
    assert choice["finish_reason"] == "stop"


def test_echo_repeats_the_prompt(any_server: RunningServer) -> None:
    alone = any_server.complete().record["choices"][0]["text"]
    assert any_server.complete(echo=True).record["choices"][0]["text"] == "Once" + alone


def test_a_prompt_that_fills_the_context_can_be_echoed_but_not_answered(any_server: RunningServer) -> None:
    context = any_server.get("/v1/models").record["data"][0]["context_length"]
    ids = [5] * context
    assert any_server.complete(prompt=ids, echo=True, max_tokens=0).status == 200
    for refused in ({"prompt": ids, "max_tokens": 1}, {"prompt": [*ids, 5], "echo": True, "max_tokens": 0}):
        answer = any_server.complete(**refused)
        assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")


def test_every_prompt_of_a_list_gets_n_choices(any_server: RunningServer) -> None:
    record = any_server.complete(prompt=["a", "b c"], n=2).record
    assert [choice["index"] for choice in record["choices"]] == [0, 1, 2, 3]
    usages = [any_server.complete(prompt=["a", "b c"], n=n).record["usage"] for n in (1, 2)]
    assert usages[0]["prompt_tokens"] == usages[1]["prompt_tokens"]
    assert usages[1]["completion_tokens"] == 2 * usages[0]["completion_tokens"] == 4 * 8
    second = any_server.complete(prompt="b c", n=2).record["choices"]
    assert [choice["text"] for choice in record["choices"][2:]] == [choice["text"] for choice in second]


def test_models_are_listed_with_their_context(any_server: RunningServer) -> None:
    (card,) = any_server.get("/v1/models").record["data"]
    assert (card["id"], card["object"], card["context_length"]) == ("fake", "model", 2048)
    assert any_server.get("/v1/models/fake").record == card


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", [0, 1])
def test_an_echo_has_the_log_probabilities_of_the_prompt(
    any_server: RunningServer, tokens: int, stream: bool
) -> None:
    """As programs that score texts ask for: the prompt and one token or none, with the place of each."""
    prompt = "Once upon a time, there was"
    ids = embedded_tokenizer().encode(prompt)
    fields = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": tokens, "stream": stream}
    answer = any_server.complete(**fields)
    if stream:
        (choice,) = joined_completion(answer.events)
    else:
        (choice,) = answer.record["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"].startswith(prompt)
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert {len(values) for values in logprobs.values()} == {len(ids) + tokens}
    assert choice["finish_reason"] == "length"
    assert stream or answer.record["usage"]["completion_tokens"] == tokens
    assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    for token, place in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"][place : place + len(token)] == token


def test_the_log_probability_of_what_cannot_be_is_a_number() -> None:
    """JSON has no infinity."""
    entries = [TokenLogprobs(300, -math.inf, ((301, -math.inf), (302, -0.5), (303, math.nan)))]
    (chat,) = chat_logprobs(entries, embedded_tokenizer())["content"]
    assert [chat["logprob"], *(top["logprob"] for top in chat["top_logprobs"])] == [
        *[-9999.0, -9999.0],
        *[-0.5, -9999.0],
    ]
    plain = CompletionLogprobs(embedded_tokenizer()).shape(entries)
    assert plain["token_logprobs"] == [-9999.0]
    assert list(plain["top_logprobs"][0].values()) == [-9999.0, -0.5, -9999.0]


HAND = "\N{WAVING HAND SIGN}"  # four bytes, of which each is a token


def test_the_tokens_of_a_part_of_a_character_have_a_name_and_a_place() -> None:
    entries = [TokenLogprobs(token, -0.5) for token in embedded_tokenizer().encode(f"{HAND}!")]
    names = ["\ufffd"] * 4 + ["!"]
    plain = CompletionLogprobs(embedded_tokenizer()).shape(entries)
    assert (plain["tokens"], plain["text_offset"]) == (names, [0, 1, 2, 3, 4])
    chat = chat_logprobs(entries, embedded_tokenizer())["content"]
    assert [entry["token"] for entry in chat] == names
    assert bytes(byte for entry in chat for byte in entry["bytes"]).decode() == f"{HAND}!"


def test_a_chunk_has_whole_characters_or_log_probabilities(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine, "script", HAND)
    for fields, texts in (({}, [HAND]), ({"logprobs": 0}, ["", "", "", HAND])):
        events = server.complete(stream=True, **fields).events
        assert [event["choices"][0]["text"] for event in events] == texts


def test_an_event_of_several_pieces_has_one_end_and_log_probabilities_once() -> None:
    """As the tokens of a draft make them."""
    event = Event(0, "<think>a</think>b", (300,), (TokenLogprobs(300, -0.5),), "stop")
    deltas = list(ChatChoice(0, embedded_tokenizer(), AnswerReader(thinking=True)).deltas(event))
    assert [list(each["delta"]) for each in deltas[1:]] == [["reasoning_content"], ["content"]]
    assert [each["logprobs"] is not None for each in deltas] == [False, True, False]
    assert [each["finish_reason"] for each in deltas] == [None, None, "stop"]
