"""Drafts from the text so far: what is proposed, and how much where drafts are right or wrong."""

from tiny_llm.engine.drafts import FIRST_STEPS_OFF, LENGTHS, MOST_DRAFTS, PATIENCE, PromptLookup

TEXT = list(range(100, 120))


def grown(lookup=None):
    """A look-up whose drafts have been right."""
    lookup = lookup or PromptLookup()
    for length in LENGTHS:
        lookup.learn(length, length)
    return lookup


def test_drafts_follow_the_newest_tokens_where_they_stood_before():
    assert PromptLookup().propose([*TEXT, *TEXT[:3]]) == TEXT[3 : 3 + LENGTHS[0]]
    assert PromptLookup().propose(TEXT) == ()
    assert PromptLookup().propose(TEXT[:2]) == ()


def test_right_drafts_make_the_next_longer_and_wrong_ones_shorter():
    lookup, text = PromptLookup(), [*TEXT, *TEXT[:3]]
    for length in (*LENGTHS, LENGTHS[-1]):
        assert len(lookup.propose(text)) == length
        lookup.learn(length, length)
    lookup.learn(MOST_DRAFTS, MOST_DRAFTS - 3)
    assert len(lookup.propose(text)) == MOST_DRAFTS
    lookup.learn(MOST_DRAFTS, 3)
    assert len(lookup.propose(text)) == LENGTHS[0]


def test_a_repetition_goes_on_beyond_the_end_of_the_text():
    assert grown().propose([7, 8] * 4) == [7, 8, 7, 8, 7, 8, 7]
    assert grown().propose([5] * 4) == [5] * MOST_DRAFTS


def test_wrong_drafts_are_not_tried_in_each_step():
    lookup, text = PromptLookup(), [*TEXT, *TEXT[:3]]
    for off in (FIRST_STEPS_OFF, 2 * FIRST_STEPS_OFF):
        for _ in range(PATIENCE):
            assert len(lookup.propose(text)) == 1
            lookup.learn(1, 0)
        assert [lookup.propose(text) for _ in range(off)] == [()] * off
    assert len(lookup.propose(text)) == 1
    lookup.learn(1, 1)  # the next pause is short again
    for _ in range(PATIENCE):
        assert lookup.propose(text)
        lookup.learn(1, 0)
    assert [len(lookup.propose(text)) for _ in range(FIRST_STEPS_OFF + 1)] == [0] * FIRST_STEPS_OFF + [1]
