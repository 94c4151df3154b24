"""`response_format` of `LLM`: answers parse and are valid, in every way of asking."""

from __future__ import annotations

import json
import re

import pytest

from tiny_llm import LLM, Grammar, Sampling

from ..support.refusal import refused

QUESTION = "Who are you?"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
        "note": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/yes"}]},
    },
    "required": ["name", "age", "tags", "note"],
    "additionalProperties": False,
    "$defs": {"yes": {"const": "yes"}},
}
HOT = Sampling(temp=2.0, seed=3)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


def is_person(value) -> bool:
    return (
        list(value) == ["name", "age", "tags", "note"]
        and 1 <= len(value["name"]) <= 12
        and type(value["age"]) is int
        and 0 <= value["age"] <= 120
        and 1 <= len(value["tags"]) <= 3
        and set(value["tags"]) <= {"a", "b"}
        and value["note"] in (None, "yes")
    )


@pytest.mark.parametrize("sampling", [Sampling(), HOT], ids=["greedy", "sampled"])
def test_an_answer_is_valid_however_it_is_asked_for(llm, sampling):
    answers = [
        llm.chat(QUESTION, sampling, response_format=PERSON),
        *llm.generate([QUESTION, "A fox", "The moon"], sampling, response_format=PERSON, batch_size=2),
    ]
    for result in answers:
        assert is_person(json.loads(result.text))
        assert result.finish_reason == "stop"
    assert is_person(json.loads("".join(llm.stream(QUESTION, sampling, response_format=PERSON))))


PAIR = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
SCHEMAS = [
    ({"enum": ["red", 5, None]}, lambda value: value in ("red", 5, None)),
    (PAIR, lambda value: len(value) == 2),
    ({"type": "string", "pattern": "^[a-c]{3}$"}, lambda value: re.fullmatch("[a-c]{3}", value)),
    ({"type": "string", "format": "date"}, lambda value: re.fullmatch(r"\d{4}-\d\d-\d\d", value)),
    ({"type": "number", "minimum": 1, "maximum": 2, "multipleOf": 0.5}, lambda value: value in (1, 1.5, 2)),
]


@pytest.mark.parametrize(("schema", "is_valid"), SCHEMAS, ids=[str(schema)[:40] for schema, _ in SCHEMAS])
def test_each_kind_of_value_is_valid(llm, schema, is_valid):
    for seed in range(3):
        result = llm.generate(QUESTION, Sampling(temp=2.0, seed=seed), response_format=schema)
        assert is_valid(json.loads(result.text)), result.text


def test_the_example_of_the_docstring(llm):
    schema = {"enum": ["yes", "no"]}
    assert json.loads(llm.generate("Is water wet?", response_format=schema).text) in ("yes", "no")
    assert llm.chat("Is water wet?", response_format=Grammar.regex("(yes|no)")).text in ("yes", "no")
    lark = Grammar.lark('start: number (" + " number)+\nnumber: /[0-9]/')
    text = llm.chat("Count.", Sampling(temp=1.0, seed=1), response_format=lark, max_tokens=40).text
    assert re.match(r"\d \+ \d", text)


def test_an_object_without_a_schema_ends_by_itself(llm):
    result = llm.chat("Say hello.", response_format=Grammar.json_object())
    assert result.finish_reason == "stop"
    assert isinstance(json.loads(result.text), dict)


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a list"])
def test_the_limit_of_tokens_may_cut_an_answer(llm, many):
    options = {"response_format": PERSON, "max_tokens": 5}
    result = llm.generate([QUESTION], **options)[0] if many else llm.generate(QUESTION, **options)
    assert (result.finish_reason, len(result.token_ids)) == ("length", 5)
    assert llm.generate(QUESTION, response_format=PERSON).text.startswith(result.text)


def test_log_probabilities_are_those_before_the_grammar(llm):
    free = llm.generate(QUESTION, max_tokens=1, logprobs=2)
    bound = llm.generate(QUESTION, max_tokens=1, logprobs=2, response_format={"type": "object"})
    assert free.logprobs is not None
    assert bound.logprobs is not None
    assert bound.logprobs[0].top == free.logprobs[0].top
    assert bound.logprobs[0].logprob < free.logprobs[0].logprob


def test_a_minimum_length_gives_way_to_the_end_of_the_grammar(llm):
    result = llm.generate(
        QUESTION, Sampling(min_tokens=9), response_format=Grammar.regex("ab?"), max_tokens=20
    )
    assert (result.text, result.finish_reason) == ("ab", "stop")


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a list"])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"foo": 1}, ValueError),
        (Grammar.regex("("), ValueError),
        ("json", TypeError),
    ],
    ids=str,
)
def test_a_wrong_format_is_refused_at_the_call(llm, wrong, error, many):
    prompts = [QUESTION] * 2 if many else QUESTION
    with refused("response_format", error, r"LLM\.generate"):
        llm.generate(prompts, response_format=wrong)
    for call, ask in (("chat", llm.chat), ("stream", llm.stream)):
        with refused("response_format", error, rf"LLM\.{call}"):
            ask(QUESTION, response_format=wrong)


def test_what_contradicts_a_format_is_refused(llm):
    with refused("ignore_eos", function=r"LLM\.generate"):
        llm.generate(QUESTION, Sampling(ignore_eos=True), response_format=PERSON)
    with refused("ignore_eos", function=r"LLM\.generate"):
        llm.generate([QUESTION], Sampling(ignore_eos=True), response_format=PERSON)


def test_parameters_of_sampling_reach_every_way_of_asking(llm):
    """A bias decides the whole answer; ids outside of the vocabulary are refused."""
    (a,) = llm.tokenizer.encode("a")
    sampling = Sampling(logit_bias={a: 100}, max_tokens=3)
    texts = [
        llm.generate("x", sampling).text,
        llm.chat("x", sampling).text,
        "".join(llm.stream("x", sampling)),
    ]
    assert [*texts, *(result.text for result in llm.generate(["x", "y"], sampling))] == ["aaa"] * 5
    for prompts in ("x", ["x"]):
        with refused("logit_bias", function=r"LLM\.generate"):
            llm.generate(prompts, Sampling(logit_bias={4096: 1}))
