"""Invalid arguments of `LLM`: each error names the argument."""

from __future__ import annotations

import json
import shutil

import pytest

from tiny_llm import LLM, ArgumentError, ArgumentTypeError
from tiny_llm.loading.find import EMBEDDED

from ..support.refusal import refused

QUESTION = "What is a token?"
MESSAGES = [{"role": "user", "content": QUESTION}]
STORY = "Once upon a time"


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


@pytest.mark.parametrize(
    ("argument", "error", "call"),
    [
        ("prompts", ArgumentTypeError, lambda llm: llm.generate(7)),
        (r"prompts\[1\]", ArgumentTypeError, lambda llm: llm.generate(["a", 7])),
        (r"prompts\[1\]", ArgumentError, lambda llm: llm.generate(["a", ""])),
        ("prompts", ArgumentTypeError, lambda llm: llm.generate(b"a")),
        ("prompts", ArgumentError, lambda llm: llm.generate("")),
        ("prompts", ArgumentError, lambda llm: llm.generate("word " * 3000)),
        ("batch_size", ArgumentError, lambda llm: llm.generate(["a"], batch_size=0)),
        ("batch_size", ArgumentError, lambda llm: llm.generate("a", batch_size=0)),
        ("batch_size", ArgumentTypeError, lambda llm: llm.generate(["a"], batch_size="3")),
        ("batch_size", ArgumentTypeError, lambda llm: llm.generate(["a"], batch_size=True)),
        ("sampling", ArgumentTypeError, lambda llm: llm.generate("a", sampling=0.7)),
        ("max_tokens", ArgumentError, lambda llm: llm.generate("a", max_tokens=0)),
        ("stop", ArgumentError, lambda llm: llm.generate("a", stop=[""])),
        ("stop", ArgumentError, lambda llm: llm.generate("a", stop="")),
        ("stop", ArgumentTypeError, lambda llm: llm.generate("a", stop=0)),
        ("stop", ArgumentTypeError, lambda llm: llm.generate("a", stop=b"")),
        (r"stop\[1\]", ArgumentTypeError, lambda llm: llm.generate("a", stop=["b", 7])),
        ("logprobs", ArgumentError, lambda llm: llm.generate("a", logprobs=-1)),
        ("logprobs", ArgumentError, lambda llm: llm.generate(["a"], logprobs=-1)),
        ("logprobs", ArgumentTypeError, lambda llm: llm.generate("a", logprobs=True)),
    ],
)
def test_errors_of_generate_name_the_argument(llm, argument, error, call):
    with refused(argument, error, r"LLM\.generate"):
        call(llm)


@pytest.mark.parametrize(
    ("argument", "error", "messages"),
    [
        ("messages", ArgumentTypeError, 7),
        ("messages", ArgumentError, []),
        (r"messages\[0\]", ArgumentTypeError, ["hello"]),
        (r"messages\[1\]", ArgumentTypeError, [*MESSAGES, {"role": "user"}]),
        (r"messages\[0\]", ArgumentTypeError, [{"role": "user", "content": None}]),
    ],
)
def test_invalid_conversations_are_refused(llm, argument, error, messages):
    with refused(argument, error, r"LLM\.chat"):
        llm.chat(messages)
    with refused(argument.replace("messages", "prompt"), error, r"LLM\.stream"):
        llm.stream(messages)


def test_a_conversation_beyond_the_context_is_refused_by_its_name(llm):
    with refused("messages", ArgumentError, r"LLM\.chat"):
        llm.chat("word " * 3000)
    with refused("prompt", ArgumentError, r"LLM\.stream"):
        llm.stream([{"role": "user", "content": "word " * 3000}])


def test_thinking_is_refused_where_nothing_would_change(llm):
    with refused("enable_thinking", ArgumentError, r"LLM\.chat"):
        llm.chat(QUESTION, enable_thinking=True)
    with refused("enable_thinking", ArgumentError, r"LLM\.stream"):
        llm.stream(STORY, enable_thinking=True)
    with refused("enable_thinking", ArgumentTypeError, r"LLM\.chat"):
        llm.chat(QUESTION, enable_thinking="no")
    with refused("enable_thinking", ArgumentTypeError, r"LLM\.stream"):
        llm.stream(STORY, enable_thinking="no")


@pytest.mark.parametrize(
    ("argument", "settings"),
    [
        ("dtype", {"dtype": "int8"}),
        ("device", {"device": "tpu"}),
        ("context", {"context": 1}),
        ("threads", {"threads": 0}),
        ("threads", {"threads": "2,"}),
        ("threads", {"threads": True}),
        ("context", {"context": 10**6}),
    ],
)
def test_an_impossible_setting_is_refused(argument, settings):
    with refused(argument, ArgumentError, "LLM"):
        LLM("tiny", **settings)


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        *((argument, 5) for argument in ("name", "dtype", "device", "offline", "draft_model", "progress")),
        *((argument, None) for argument in ("name", "dtype", "device", "offline")),
        ("offline", "no"),
        ("context", "9"),
        ("threads", 2.5),
        ("threads", (2, 1)),
        ("context", True),
    ],
)
def test_a_setting_of_a_wrong_type_is_refused(argument, given):
    with refused(argument, ArgumentTypeError, "LLM"):
        LLM(**{"name": "tiny", argument: given})


def test_the_context_that_is_too_long_is_that_of_the_model_which_has_the_shorter_one(tmp_path):
    """For example that of the draft model."""
    folder = shutil.copytree(EMBEDDED, tmp_path / "draft")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}))
    with pytest.raises(
        ArgumentError, match=rf"context: got 100, expected at most 64, the context of {folder}$"
    ):
        LLM("tiny", draft_model=folder, context=100)
    assert LLM("tiny", draft_model=folder).context == 64
