"""When an answer takes drafts of a small model: pauses, longer and longer, after those that did not pay."""

import numpy as np

from tiny_llm.engine.drafts import FIRST_PAUSE, ModelDrafts


def test_drafts_that_do_not_pay_are_switched_off_for_longer_and_longer():
    drafts = ModelDrafts(4, cost=0.25)
    steps = []
    for step in range(200):
        if drafts.propose():
            steps.append(step)
            drafts.learn(4, 0)
    pauses = [gap - 1 for gap in np.diff(steps) if gap > 1]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    good = ModelDrafts(4, cost=0.25)
    for accepted in [4, 2, 0, 3] * 20:
        assert len(good.propose()) == 4
        good.learn(4, accepted)


def test_pauses_are_short_again_after_drafts_that_paid():
    drafts = ModelDrafts(4, cost=0.25)

    def pause_after_wrong_drafts():
        while drafts.propose():
            drafts.learn(4, 0)
        pause = 1
        while not drafts.propose():
            pause += 1
        return pause

    assert [pause_after_wrong_drafts() for _ in range(2)] == [FIRST_PAUSE, 2 * FIRST_PAUSE]
    drafts.learn(4, 1)  # a pause has paid for some wrong drafts
    assert drafts.propose()
    drafts.learn(4, 4)
    assert pause_after_wrong_drafts() == FIRST_PAUSE
