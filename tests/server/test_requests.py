"""What reaches the engine: fields, defaults, the rendered prompt, the right model."""

from __future__ import annotations

from typing import Any

import pytest

from ..support.serving import chat_models
from ..support.serving.fake_engine import FakeEngine, embedded_tokenizer
from ..support.serving.running import RunningServer, running


def test_fields_reach_the_engine(server: RunningServer) -> None:
    server.chat(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=-1, repetition_penalty=1.1, stop="x",
        max_tokens=3, n=2, logprobs=True, top_logprobs=4, cache_salt="s", min_tokens=3, stop_token_ids=[7],
        logit_bias={"5": 2}, presence_penalty=0.5, frequency_penalty=-0.5, ignore_eos=True,
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
    assert (sampling.min_tokens, sampling.stop_token_ids, sampling.logit_bias) == (3, (7,), ((5, 2.0),))
    penalties = (sampling.presence_penalty, sampling.frequency_penalty)
    assert (penalties, sampling.ignore_eos) == ((0.5, -0.5), True)
    assert (request.n, request.logprobs, request.salt) == (2, 4, "s")


def test_one_token_may_be_all_to_choose_from(server: RunningServer) -> None:
    assert server.chat(top_k=1).status == 200
    assert server.engine.requests[-1].sampling.top_k == 1


def test_the_first_request_renders_as_often_as_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a chat template understands is known before the first one."""
    tokenizer = chat_models.tokenizer_with(chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING)
    render, rendered = tokenizer.apply_chat_template, []

    def count(*arguments: Any, **options: Any) -> str:
        rendered.append(options)
        return render(*arguments, **options)

    monkeypatch.setattr(tokenizer, "apply_chat_template", count)
    tool = {"type": "function", "function": {"name": "f"}}
    with running(FakeEngine(tokenizer=tokenizer)) as server:
        rendered.clear()
        for fields in ({"tools": [tool]}, {"chat_template_kwargs": {"enable_thinking": True}}):
            assert server.chat(**fields).status == 200
        assert len(rendered) == 2


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


CONTINUED = {"continue_final_message": True}
ASKED = {"role": "user", "content": "Colour?"}
BEGUN = {"role": "assistant", "content": " The sky "}
NAMED_CALL = {"function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({}, "assistant\n The sky <|im_end|>\n<|im_start|>assistant\n"),
        (CONTINUED, "assistant\n The sky "),
        ({**CONTINUED, "add_generation_prompt": False}, "assistant\n The sky "),
        ({"add_generation_prompt": False}, "assistant\n The sky <|im_end|>\n"),
        (
            {"add_generation_prompt": True, "continue_final_message": False},
            "<|im_end|>\n<|im_start|>assistant\n",
        ),
    ],
)
def test_a_final_message_is_continued_if_the_client_asks(
    server: RunningServer, fields: dict[str, Any], end: str
) -> None:
    assert server.chat(messages=[ASKED, BEGUN], **fields).status == 200
    written = embedded_tokenizer().decode(server.engine.requests[-1].prompt_ids)
    assert written.startswith("<|im_start|>user\nColour?<|im_end|>\n<|im_start|>assistant\n")
    assert written.endswith(end)


def test_a_continued_message_has_its_reasoning_before_it() -> None:
    tokenizer = chat_models.tokenizer_with(chat_models.MESSAGES + chat_models.THINKING)
    engine = FakeEngine(tokenizer=tokenizer, script="<think>is blue.")
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    with running(engine) as server:
        answer = server.chat(messages=[ASKED, BEGUN], **CONTINUED, **thinking, max_tokens=99)
    message = answer.record["choices"][0]["message"]
    assert (message["content"], "reasoning_content" in message) == ("<think>is blue.", False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [ASKED]}, "continue_final_message"),
        ({"messages": [{**BEGUN, "tool_calls": [NAMED_CALL]}]}, "continue_final_message"),
        ({"add_generation_prompt": True}, "add_generation_prompt"),
        ({"response_format": {"type": "json_object"}}, "messages"),
        ({"tools": [TOOL], "tool_choice": "required"}, "messages"),
    ],
)
def test_a_message_that_cannot_be_continued_is_refused(
    server: RunningServer, fields: dict[str, Any], param: str
) -> None:
    answer = server.chat(**{"messages": [ASKED, BEGUN], **CONTINUED, **fields})
    assert (answer.status, answer.error["param"]) == (400, param)


def test_a_template_that_does_not_write_the_final_message_cannot_continue_it() -> None:
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with("{{ messages[0].content }}"))) as server:
        answer = server.chat(messages=[ASKED, BEGUN], **CONTINUED)
        assert (answer.status, answer.error["param"]) == (400, "continue_final_message")


def test_reasoning_of_earlier_answers_reaches_the_template() -> None:
    tokenizer = chat_models.tokenizer_with("{{ messages[1].reasoning_content }}")
    with running(FakeEngine(tokenizer=tokenizer)) as server:
        assert server.chat(messages=[ASKED, {**BEGUN, "reasoning_content": "Hm."}]).status == 200
        ollama = {"messages": [ASKED, {**BEGUN, "thinking": "So."}, ASKED]}
        assert server.request("POST", "/api/chat", ollama).status == 200
        written = [tokenizer.decode(request.prompt_ids) for request in server.engine.requests]
        assert written == ["Hm.", "So."]


def test_messages_that_the_template_refuses_are_the_mistake_of_the_client() -> None:
    template = "{% if messages[0].content != '?' %}{{ raise_exception('No.') }}{% endif %}?"
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(template))) as server:
        answer = server.chat()
        assert (answer.status, answer.error["param"], answer.error["code"]) == (
            400,
            "messages",
            "chat_template",
        )


def test_several_models_answer_under_their_names() -> None:
    first, second = FakeEngine(script="first"), FakeEngine(script="second")
    with running({"a": first, "org/b": second}) as server:
        answers = [server.chat(model=name).record for name in ("org/b", "a")]
        assert [answer["choices"][0]["message"]["content"] for answer in answers] == ["second", "first"]
        assert server.chat().record["model"] == "a", "the first is the default"
        assert server.chat(model="c").error["code"] == "model_not_found"
        assert server.get("/v1/models/org/b").record["id"] == "org/b"
        assert len(server.get("/v1/models").record["data"]) == 2


def test_echo_alone_does_not_need_the_engine(server: RunningServer) -> None:
    requests = len(server.engine.requests)
    record = server.complete(echo=True, max_tokens=0, n=2).record
    assert [choice["text"] for choice in record["choices"]] == ["Once", "Once"]
    assert record["usage"]["completion_tokens"] == 0
    assert len(server.engine.requests) == requests


def test_a_template_that_refuses_tools_or_thinking_has_none() -> None:
    template = "{% if tools or enable_thinking %}{{ raise_exception('No.') }}{% endif %}?"
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(template))) as server:
        for fields in ({"tools": [TOOL]}, thinking):
            assert server.chat(**fields).error["code"] == "unsupported_value"
