"""The prompts written by hand: enough of each kind, and never in the training data."""

import random

import pytest

from training.corpus.batches import Encoder
from training.corpus.mixture import KINDS, conversation, messages
from training.corpus.split import normal
from training.evaluate import ROUGH, cases
from training.evaluation.answers import CONTEXT
from training.evaluation.held_out import by_hand, forbidden
from training.train import EMBEDDED


@pytest.fixture(scope="module")
def encode() -> Encoder:
    return Encoder(EMBEDDED / "tokenizer.json")


def test_there_are_enough_prompts_of_every_kind(encode):
    assert set(by_hand()) == {*KINDS, ROUGH}
    assert len(by_hand()) == 10
    assert sum(map(len, by_hand().values())) >= 200
    assert len(cases(0, 20, encode)) >= 300


def test_every_prompt_has_facts_for_the_judge():
    assert all(turns[-1].facts for of_kind in by_hand().values() for turns in of_kind)


def test_every_prompt_fits_into_the_context(encode):
    sizes = [len(encode.ids(turns[-1].user)) for of_kind in by_hand().values() for turns in of_kind]
    assert max(sizes) < CONTEXT - 100
    assert max(sizes) > 1200  # the long ones are long


def test_held_out_prompts_are_not_in_the_training_text():
    rng = random.Random(0)
    asked = {
        normal(message["content"])
        for _ in range(6000)
        for message in messages(rng, conversation(rng)[1])
        if message["role"] == "user"
    }
    assert asked & forbidden() == set()
