"""OpenAI's own client: whole answers, streams, and the exceptions that it makes of errors."""

from __future__ import annotations

import openai
import pytest

from tiny_llm.errors import Draining, QueueFull

from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer, running

GREEDY = {"model": "fake", "max_tokens": 8, "temperature": 0}
MESSAGES: list = [{"role": "user", "content": "Hello"}]


def client_of(server: RunningServer, key: str = "unused") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def client(any_server: RunningServer) -> openai.OpenAI:
    return client_of(any_server)


def test_a_chat_stream_is_the_whole_answer(client: openai.OpenAI) -> None:
    options = {
        "model": "fake",
        "messages": MESSAGES,
        "max_tokens": 8,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 1,
    }
    # A salt each: a prompt that is cached but for its last token is rounded in another way.
    whole = client.chat.completions.create(**options, extra_body={"cache_salt": "whole"})
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(**options, **streaming, extra_body={"cache_salt": "stream"}))
    assert whole.choices[0].message.content
    assert (
        "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        == whole.choices[0].message.content
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    usage, again = whole.usage.model_dump(), chunks[-1].usage.model_dump()
    details = usage.pop("prompt_tokens_details"), again.pop("prompt_tokens_details")
    assert again == usage
    assert {each["cached_tokens"] for each in details} <= {0, usage["prompt_tokens"] - 1}
    streamed = [
        entry
        for c in chunks
        if c.choices and c.choices[0].logprobs
        for entry in c.choices[0].logprobs.content
    ]
    assert streamed == whole.choices[0].logprobs.content


def test_a_completion_stream_is_the_whole_answer(client: openai.OpenAI) -> None:
    options = {**GREEDY, "prompt": "Once", "n": 2}
    whole = client.completions.create(**options)
    texts = ["", ""]
    for chunk in client.completions.create(**options, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").context_length == 2048


def test_wrong_requests_raise_what_the_client_documents(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="fake", messages=MESSAGES, temperature=3)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    assert unknown.value.code == "model_not_found"


def test_failures_raise_what_the_client_retries() -> None:
    engine = FakeEngine(refusal=QueueFull(8))
    with running(engine, api_keys=("secret",)) as server:
        client = client_of(server, "secret")
        with pytest.raises(openai.RateLimitError) as full:
            client.chat.completions.create(model="fake", messages=MESSAGES)
        assert full.value.response.headers["retry-after"] == "1"
        engine.refusal = Draining()
        with pytest.raises(openai.InternalServerError) as draining:
            client.chat.completions.create(model="fake", messages=MESSAGES)
        assert draining.value.status_code == 503
        engine.refusal = None
        engine.failure = ValueError("an internal detail")
        with pytest.raises(openai.APIError, match="failed to answer") as broken:
            list(client.chat.completions.create(model="fake", messages=MESSAGES, stream=True))
        assert "detail" not in str(broken.value.body)
        with pytest.raises(openai.AuthenticationError):
            client_of(server, "wrong").models.list()
