"""`Sampling`: the contract of each parameter, its limits and its defaults."""

import pytest

from tiny_llm import ArgumentError, ArgumentTypeError, Sampling

from ..support.refusal import case_id, refused

REFUSED = [
    ("presence_penalty", ArgumentError, (-2.1, 2.1, float("nan"), float("inf"))),
    ("presence_penalty", ArgumentTypeError, ("1", True, None, [1])),
    ("frequency_penalty", ArgumentError, (-2.1, 2.1, float("nan"))),
    ("frequency_penalty", ArgumentTypeError, ("1", False, None)),
    ("logit_bias", ArgumentError, ({-1: 1.0}, {2**31: 1.0}, dict.fromkeys(range(1025), 1.0))),
    ("logit_bias", ArgumentTypeError, ("1", None, 3, {"5": 1.0}, {True: 1.0}, {1.5: 1}, [1], [(1, 2, 3)])),
    (r"logit_bias\[5\]", ArgumentError, ({5: 100.5}, {5: -101}, {5: float("nan")})),
    (r"logit_bias\[5\]", ArgumentTypeError, ({5: "1"}, {5: None}, {5: True})),
    ("min_tokens", ArgumentError, (-1,)),
    ("min_tokens", ArgumentTypeError, (1.0, True, None, "3")),
    ("ignore_eos", ArgumentTypeError, (1, None, "yes")),
    ("stop_token_ids", ArgumentTypeError, (5, None, "5", {5})),
    ("stop_token_ids", ArgumentError, (list(range(65)),)),
    (r"stop_token_ids\[1\]", ArgumentError, ([1, -1], [1, 2**31])),
    (r"stop_token_ids\[1\]", ArgumentTypeError, ([1, 2.0], [1, True], [1, "2"])),
    ("stop", ArgumentError, (["x"] * 65, "x" * 1025)),
]


@pytest.mark.parametrize(
    ("argument", "error", "value"),
    [(argument, error, value) for argument, error, values in REFUSED for value in values],
    ids=case_id,
)
def test_values_outside_of_the_contract_are_refused(argument, error, value):
    with refused(argument, error, "Sampling"):
        Sampling(**{argument.partition("\\")[0]: value})


@pytest.mark.parametrize(
    "given",
    [
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": {0: -100, 7: 100.0}},
        {"logit_bias": dict.fromkeys(range(1024), 1)},
        {"min_tokens": 5, "max_tokens": 5},
        {"stop_token_ids": list(range(64)), "ignore_eos": True},
        {"stop": ["x" * 1024] * 64},
    ],
    ids=case_id,
)
def test_values_at_the_limits_are_accepted(given):
    sampling = Sampling(**given)
    assert hash(sampling) == hash(Sampling(**given))
    assert sampling.with_limits(None, None) == sampling


def test_more_tokens_at_least_than_at_most_are_refused():
    with refused("min_tokens", function="Sampling"):
        Sampling(min_tokens=6, max_tokens=5)
    with refused("min_tokens", function="Sampling"):
        Sampling(min_tokens=6).with_limits(5, None)


def test_a_bias_is_kept_in_the_order_of_ids():
    assert Sampling(logit_bias={9: 1, 2: -1}).logit_bias == ((2, -1.0), (9, 1.0))


@pytest.mark.parametrize("given", [{"logit_bias": {10: 1.0}}, {"stop_token_ids": [3, 10]}], ids=case_id)
def test_ids_are_compared_with_a_vocabulary(given):
    sampling = Sampling(**given)
    sampling.check_vocabulary("submit", 11)
    with refused(next(iter(given)), function="submit"):
        sampling.check_vocabulary("submit", 10)


def test_an_answer_ends_with_end_tokens_and_stop_tokens():
    assert Sampling(stop_token_ids=[5]).ending_tokens({1, 2}) == {1, 2, 5}
    assert Sampling(stop_token_ids=[5], ignore_eos=True).ending_tokens({1, 2}) == {5}
    assert Sampling(stop_token_ids=[1], ignore_eos=True).ending_tokens({1, 2}) == {1}


def test_only_parameters_that_change_logits_are_named():
    assert Sampling(temp=1, top_p=0.5, stop_token_ids=[1], ignore_eos=True).changed_logits is None
    for given, words in [
        ({"repetition_penalty": 1.1}, "a repetition penalty"),
        ({"presence_penalty": 1}, "a presence penalty"),
        ({"frequency_penalty": -1}, "a frequency penalty"),
        ({"logit_bias": {1: 1}}, "a logit bias"),
        ({"min_tokens": 1}, "min_tokens"),
    ]:
        assert Sampling(**given).changed_logits == words
