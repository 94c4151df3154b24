"""The checker refuses wrong answers and accepts right ones."""

import random
from itertools import pairwise

import pytest

from training.corpus.conversation import Turn
from training.corpus.mixture import of_kind
from training.evaluation.checks import Verdict, check, judge
from training.kinds.stories.requests import story


def example_story() -> Turn:
    """A held-out story with a subject and at least five sentences."""
    rng = random.Random(7)
    while True:
        turn = story(rng, True)[0]
        if turn.facts["story"] and not turn.facts["brief"]:
            return turn


def spoiled(turn: Turn, how: str) -> str:
    text, sentences = turn.assistant, turn.assistant.split(". ")
    return {
        "without its subject": " ".join(
            word for word in text.split() if turn.facts["story"].split()[-1] not in word.lower()
        ),
        "one sentence": sentences[0] + ".",
        "a sentence twice": ". ".join([*sentences[:3], *sentences[2:]]),
        "in the middle of a sentence": text[:-12],
        "words in another order": " ".join(sorted(text.split(), key=lambda word: word[::-1])),
    }[how]


WAYS = (
    "without its subject",
    "one sentence",
    "a sentence twice",
    "in the middle of a sentence",
    "words in another order",
)


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_story_is_refused(way):
    turn = example_story()
    assert check(turn, turn.assistant, ended=True) == ""
    assert check(turn, spoiled(turn, way), ended=True) != ""


def test_an_incomplete_answer_is_refused():
    turn = Turn("2 + 2", "2 + 2 = 4.", {"number": "4"})
    assert check(turn, turn.assistant, ended=False) == "does not end"


@pytest.mark.parametrize(
    ("facts", "right", "wrong"),
    [
        ({"number": "12"}, "5 + 7 = 12.", "5 + 7 = 13."),
        ({"number": "-3"}, "2 - 5 = -3.", "2 - 5 = 3."),
        ({"number": "12"}, "12.", "Twelve."),
        ({"exact": "8 is even."}, "8 is even.", "8 is odd."),
        ({"begins": "9"}, "9 is larger than 4.", "90 is larger than 4."),
        ({"contains": "cold"}, "The opposite of hot is Cold.", "The opposite of hot is warm."),
        ({"contains": "keys", "contains too": "page"}, "It keeps keys. A page is a block.", "It keeps keys."),
        ({"declines": "yes"}, "I am only a tiny model.", "The capital of France is Paris."),
        ({"reply": "[Hi|Hello]! How are you?"}, "Hello! How are you?", "Hello! How old are you?"),
    ],
)
def test_right_and_wrong_answers_to_each_fact(facts, right, wrong):
    turn = Turn("question", right, facts)
    assert check(turn, right, ended=True) == ""
    assert check(turn, wrong, ended=True) != ""


def test_the_answer_to_another_question_is_refused():
    rng = random.Random(11)
    for kind in ("arithmetic", "words"):
        turns = [of_kind(rng, kind, True)[0] for _ in range(40)]
        accepted = sum(check(turn, other.assistant, ended=True) == "" for turn, other in pairwise(turns))
        assert accepted <= 3  # two questions may share their result by chance


@pytest.mark.parametrize(
    ("facts", "answer", "verdict"),
    [
        ({"number": "12"}, "5 + 7 = 12.", Verdict.RIGHT),
        ({"number": "12"}, "5 + 7 = 13.", Verdict.WRONG),
        ({"number": "12"}, "I only add numbers up to 999, so I would rather not guess.", Verdict.DECLINED),
        ({"number": "12"}, "I cannot do that sum: 5 + 7 = 13.", Verdict.WRONG),
        ({"declines": "yes"}, "That sum is beyond me.", Verdict.RIGHT),
        ({"declines": "yes"}, "34 * 57 = 1838.", Verdict.WRONG),
        ({"declines": "yes", "or": "1938"}, "34 * 57 = 1938.", Verdict.RIGHT),
        ({"contains": "never|not"}, "It runs on every Mac.", Verdict.WRONG),
        ({"contains": "never|not"}, "It has never run on a Mac.", Verdict.RIGHT),
        ({"story": "cat", "brief": "yes"}, "Once upon a time, there was a dog.", Verdict.NEITHER),
    ],
)
def test_the_verdict_distinguishes_wrong_from_declined(facts, answer, verdict):
    assert judge(Turn("question", "", facts), answer, ended=True)[0] == verdict


def test_an_incomplete_answer_is_neither_right_nor_wrong():
    assert judge(Turn("2 + 2", "", {"number": "4"}), "2 + 2 = 5 5 5", ended=False)[0] == Verdict.NEITHER
