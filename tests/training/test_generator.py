"""The generator: reproducible, whole sentences, true answers, and a held-out side unseen in training."""

import random
import re

import pytest

from training.corpus.mixture import KINDS, conversation, messages, of_kind, question_held_out
from training.corpus.split import choose_side, held_out
from training.evaluation.checks import check
from training.language.lexicon import a, plural
from training.language.template import expand, pattern, plainest

SIDES = pytest.mark.parametrize("holdout", [False, True], ids=["training", "held-out"])
WITH_CODE = {"other", "long"}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def samples(kind: str, holdout: bool, size: int = 60) -> list:
    rng = random.Random(f"{kind}/{holdout}")
    return [of_kind(rng, kind, holdout) for _ in range(size)]


def test_the_seed_decides_the_conversation():
    def made(seed: int) -> list:
        rng = random.Random(seed)
        return [messages(rng, conversation(rng)[1]) for _ in range(50)]

    assert made(1) == made(1)
    assert made(1) != made(2)


@EACH_KIND
@SIDES
def test_no_template_mark_is_left_in_the_text(kind, holdout):
    for turns in samples(kind, holdout):
        for turn in turns:
            assert turn.user.strip()
            assert turn.assistant.strip()
            # a question may hold code, an answer never does
            marks = r"[\[\]{}|]|  |\bNone\b"
            assert not re.search(marks, turn.assistant), turn
            assert kind in WITH_CODE or not re.search(marks, turn.user), turn


@EACH_KIND
@SIDES
def test_the_right_answer_passes_its_own_check(kind, holdout):
    for first, *_ in samples(kind, holdout):
        assert check(first, first.assistant, ended=True) == "", first


def test_arithmetic_answers_are_true():
    found = 0
    for turns in samples("arithmetic", holdout=False, size=300):
        for left, sign, right, result in re.findall(r"(-?\d+) ([-+*/]) (\d+) = (-?\d+)", turns[0].assistant):
            found += 1
            x, y = int(left), int(right)
            assert int(result) == {"+": x + y, "-": x - y, "*": x * y, "/": x // y if y else None}[sign]
            assert sign != "/" or x % y == 0
    assert found > 150


@pytest.mark.parametrize("kind", [kind for kind, (_, _, by_question) in KINDS.items() if by_question])
def test_held_out_questions_are_not_in_the_training_text(kind):
    assert not any(question_held_out(turn.user) for turns in samples(kind, False) for turn in turns)
    assert all(question_held_out(turns[0].user) for turns in samples(kind, True))


def test_the_sides_of_a_split_are_disjoint_and_complete():
    items = [f"item {i}" for i in range(600)]
    training, kept = choose_side("x", items, False), choose_side("x", items, True)
    assert sorted(training + kept) == sorted(items)
    assert 20 < len(kept) < 90
    assert held_out("x", kept[0])


def test_a_long_chat_joins_several_subjects():
    rng = random.Random(3)
    long = [turns for kind, turns in (conversation(rng) for _ in range(400)) if kind == "long chat"]
    assert long
    assert max(len(turns) for turns in long) >= 4


def test_a_template_and_its_pattern_agree():
    template = "[Hi|Hello[ there|]], I am [tiny|a [small|little] model]."
    rng = random.Random(0)
    readings = {expand(rng, template) for _ in range(200)}
    assert len(readings) == 9
    assert all(re.fullmatch(pattern(template), reading) for reading in readings)
    assert plainest(template) in readings
    assert not re.fullmatch(pattern(template), "Hi, I am big.")


def test_small_grammar():
    assert [a("owl"), a("unicorn"), a("hedgehog")] == ["an owl", "a unicorn", "a hedgehog"]
    assert [plural(x) for x in ("fox", "pony", "mouse", "boy")] == ["foxes", "ponies", "mice", "boys"]
