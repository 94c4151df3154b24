"""The embedded model gives true answers or declines; training/evaluate.py has many more questions."""

import pytest

from training.corpus.batches import Encoder
from training.evaluate import MAX_WRONG, OF_ITS_DOMAIN, Case, cases, evaluate, faults
from training.evaluation.answers import by_pipeline
from training.evaluation.checks import Verdict
from training.evaluation.held_out import by_hand
from training.train import EMBEDDED

pytestmark = pytest.mark.usefixtures("on_the_cpu")
SHORT = [kind for kind in by_hand() if kind not in ("story", "long")]


@pytest.fixture(scope="module")
def answer():
    return by_pipeline(EMBEDDED)


def test_the_short_prompts_by_hand(answer):
    asked = [Case(kind, "by hand", turns) for kind in SHORT for turns in by_hand()[kind]]
    _, records = evaluate(answer, asked)
    wrong = [record for record in records if record["verdict"] == Verdict.WRONG]
    right = [r for r in records if r["kind"] in OF_ITS_DOMAIN and r["verdict"] == Verdict.RIGHT]
    assert len(asked) >= 150
    assert len(wrong) <= MAX_WRONG * len(asked), wrong
    assert len(right) >= 0.9 * sum(case.kind in OF_ITS_DOMAIN for case in asked), records


@pytest.mark.slow
def test_it_may_ship(answer):
    counts, _ = evaluate(answer, cases(0, 40, Encoder(EMBEDDED / "tokenizer.json")))
    assert faults(counts) == []
