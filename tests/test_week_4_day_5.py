"""Week 4, day 5: sampling and drafts in a batch. A number for each token, drafts from the text, a step."""

import itertools
import os
import random
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.engine.drafts import FIRST_STEPS_OFF, MOST_INDEXED, PromptLookup
from tiny_llm.errors import NumericError
from tiny_llm.sampling import row_step
from tiny_llm.sampling.params import Sampling
from tiny_llm.sampling.row_sampler import ACCEPT, DRAW, PROPOSE, RowSampler, uniform_number
from tiny_llm.sampling.rows import verify_rows

from .support.generation.sampling import assert_drawn_from

END = 9


def test_task_1_numbers_are_at_least_0_below_1_and_exact_in_float32():
    """A number that float32 rounds up to 1 would lead past the last token."""
    numbers = [uniform_number(3, 0, index) for index in range(2000)]
    assert all(0 <= number < 1 for number in numbers)
    assert [float(np.float32(number)) for number in numbers] == numbers


def test_task_1_every_argument_counts():
    """Also where digits would run into each other, as in (1, 11) and (11, 1), or sums be equal."""
    seeds = (-(2**63), -1, 0, 1, 11, 111, 2**63 - 1)
    identities = list(itertools.product(seeds, (0, 1, 11), (0, 1, 11, 111), (DRAW, ACCEPT, PROPOSE)))
    numbers = {uniform_number(*identity) for identity in identities}
    assert len(numbers) >= len(identities) - 1, "one pair may be equal by chance, more are not"


def test_task_1_numbers_are_uniform_along_each_argument():
    """16 equal parts of [0, 1), and the 16 pairs of quarters of neighbours, are met equally often."""
    runs = [(7, 0, None), (None, 0, 5), (7, None, 5)]
    for run in runs:
        identities = [[n if part is None else part for part in run] for n in range(4000)]
        numbers = np.array([uniform_number(*each) for each in identities])
        assert_drawn_from((numbers * 16).astype(int), np.full(16, 1 / 16))
        first, second = (numbers * 4).astype(int).reshape(-1, 2).T
        assert_drawn_from(4 * first + second, np.full(16, 1 / 16))


def test_task_1_there_is_no_state():
    """A number is the same in any order, and the generators of others do not move."""
    forwards = [uniform_number(1, 0, index) for index in range(10)]
    assert [uniform_number(1, 0, index) for index in reversed(range(10))] == forwards[::-1]
    random.seed(4)
    mx.random.seed(4)
    wanted = (random.random(), mx.random.uniform().item())
    random.seed(4)
    mx.random.seed(4)
    uniform_number(1, 0, 0)
    assert (random.random(), mx.random.uniform().item()) == wanted


def test_task_1_another_process_gets_the_same_number():
    """An answer is repeated after a restart, where Python hashes texts in another way."""
    program = "from tiny_llm.sampling.row_sampler import uniform_number; print(uniform_number(5, 1, 17))"
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": salt}
        command = [sys.executable, "-S", "-c", program]
        printed = subprocess.check_output(command, env=environment, text=True)
        assert float(printed) == uniform_number(5, 1, 17)


def ids(text):
    """A token for each letter."""
    return list(text.encode())


def drafted(text, lookup=None):
    """What is drafted after this text, as text."""
    return bytes((lookup or PromptLookup()).propose(ids(text))).decode()


def grown():
    """A look-up that drafts 7 tokens, because all before were right."""
    lookup = PromptLookup()
    for length in (1, 3, 7):
        lookup.learn(length, length)
    return lookup


def test_task_2_what_followed_the_newest_three_tokens_is_drafted():
    assert drafted("one two. one") == " "
    assert drafted("one two. one", grown()) == " two. o"


@pytest.mark.parametrize("text", ["", "ab", "abc", "aaa", "abcdefgh", "abcdab", "abcabd"])
def test_task_2_nothing_is_drafted_where_nothing_is_known(text):
    """The newest three tokens must have stood before: the end of the text does not count."""
    assert drafted(text, grown()) == ""


def test_task_2_the_last_place_counts():
    """And not the first one, which may be far away."""
    assert drafted("abc1 abc2 abc") == "2"


def test_task_2_a_repetition_goes_on():
    """Fewer known tokens than drafts: they are repeated."""
    assert drafted("xyxyxy", grown()) == "xyxyxyx"
    assert drafted("abcdabc", grown()) == "dabcdab"
    assert drafted("aaaa", grown()) == "aaaaaaa"


def test_task_2_drafts_have_a_limit():
    """That of the look-up, and the number that it has learned."""
    lookup = PromptLookup(most_drafts=5)
    for length in (1, 3, 5):
        assert drafted("0123456789012", lookup) == "3456789"[:length]
        lookup.learn(length, length)


def test_task_2_a_growing_text_is_searched_like_a_whole_one():
    """Each step looks for the newest three letters in all of the text before the last letter."""
    letters, lookup = "".join(random.Random(1).choices("ab", weights=(2, 1), k=80)), PromptLookup()
    for end in range(1, len(letters)):
        if end % 3 == 0:  # some steps bring one token, some bring two
            continue
        text = letters[:end]
        found = text.rfind(text[-3:], 0, end - 1) if end >= 3 else -1
        assert drafted(text, lookup) == ("" if found < 0 else text[found + 3]), f"after {text}"


def test_task_2_a_long_prompt_is_read_in_parts():
    """Each step reads at most MOST_INDEXED further n-grams, and all are known in the end."""

    class Tokens(list):
        read = 0

        def __getitem__(self, place):
            found = super().__getitem__(place)
            Tokens.read += len(found) if isinstance(place, slice) else 1
            return found

    steps = 4
    text = Tokens(range(steps * MOST_INDEXED - 3))
    text += list(text[-100:-97])
    lookup = PromptLookup()
    for step in range(steps):
        Tokens.read = 0
        assert list(lookup.propose(text)) == ([text[-100]] if step == steps - 1 else [])
        assert Tokens.read <= 4 * MOST_INDEXED, f"step {step} read too much"


def test_task_2_after_two_wrong_drafts_there_is_a_pause():
    """`learn` sets how many steps it takes; `propose` lets them pass."""
    lookup, text = PromptLookup(), "abcabc"
    for pause in (FIRST_STEPS_OFF, 2 * FIRST_STEPS_OFF):
        for _ in range(2):
            assert drafted(text, lookup) == "a"
            lookup.learn(1, 0)
        assert [drafted(text, lookup) for _ in range(pause)] == [""] * pause
    assert drafted(text, lookup) == "a"


P = (0.5, 0.25, 0.125, 0.125)


def row(numbers=None, **sampling):
    """A row; with `numbers`, those are its numbers at its positions."""
    made = RowSampler(Sampling(**sampling), 5, 0, [1, 2], {END})
    made.masks = lambda drafts: [None] * (len(drafts) + 1)  # no grammar: that is day 6
    if numbers is not None:
        made.uniform = lambda place, purpose=DRAW: numbers[place]
    return made


def logits_for(best):
    """Logits [N, 10]: the best token of row i is best[i]."""
    return mx.eye(10)[mx.array(best)]


def tokens(drawn):
    return [each.token_id for each in drawn]


def test_task_3_greedy_rows_take_the_best_token_at_each_position():
    rows = [row(), row(logit_bias={4: 100})]
    found = verify_rows(logits_for([3, 1, 2, 0, 0]), rows, [[3, 1], [4]])
    assert [tokens(each) for each in found] == [[3, 1, 2], [4, 4]]


def test_task_3_each_position_has_its_own_number():
    """The token is the first one at which the sum of the probabilities exceeds the number."""
    sampled = row([0.1, 0.6, 0.8, 0.9], temp=1.0)
    (found,) = verify_rows(mx.log(mx.array([P] * 4)), [sampled], [[0, 1, 2]])
    assert tokens(found) == [0, 1, 2, 3]


def test_task_3_rows_keep_their_own_filters():
    """All have the number 0.9: 3 without filters, 1 of two tokens with 2/3 and 1/3, and so on."""
    expected = [
        ({"temp": 1.0}, 3),
        ({"temp": 1.0, "top_k": 2}, 1),
        ({"temp": 1.0, "top_p": 0.5}, 0),
        ({"temp": 1.0, "min_p": 0.5}, 1),
        ({"temp": 0.5}, 1),  # 0.73, 0.18, 0.05, 0.05
        ({"temp": 0}, 0),
        ({"temp": 1.0, "logit_bias": {2: 100}}, 2),
    ]
    rows = [row([0.9], **sampling) for sampling, _ in [*expected, *reversed(expected)]]
    found = verify_rows(mx.log(mx.array([P] * len(rows))), rows, [()] * len(rows))
    wanted = [[token] for _, token in expected]
    assert [tokens(each) for each in found] == [*wanted, *reversed(wanted)]


def test_task_3_rows_with_equal_filters_are_drawn_together(monkeypatch):
    """Eight rows with nine positions, but two operations."""
    sizes, draw_at = [], row_step.draw_at

    def counted(logits, sampling, uniform):
        sizes.append(logits.shape[0])
        return draw_at(logits, sampling, uniform)

    monkeypatch.setattr(row_step, "draw_at", counted)
    rows = [row(temp=1.0 + number % 2) for number in range(8)]
    assert len(verify_rows(mx.zeros((9, 10)), rows, [[1], *[()] * 7])) == 8
    assert sorted(sizes) == [4, 5]


@pytest.mark.parametrize(
    ("drafts", "kept"),
    [
        ([], [2]),
        ([2], [2, 7]),
        ([2, 7, 1, 8], [2, 7, 1, 8, 3]),
        ([5, 7, 1, 8], [2]),
        ([2, 5, 1, 8], [2, 7]),
        ([2, 7, 1, 5], [2, 7, 1, 8]),
    ],
)
def test_task_3_drafts_are_kept_up_to_the_first_wrong_one(drafts, kept):
    """The model says 2, 7, 1, 8, 3; in place of a wrong draft comes its own token, after that nothing."""
    best = [2, 7, 1, 8, 3][: len(drafts) + 1]
    neighbours = [logits_for([4]), logits_for(best), logits_for([6, 6])]
    found = verify_rows(mx.concatenate(neighbours), [row(), row(), row()], [[], drafts, [6]])
    assert [tokens(each) for each in found] == [[4], kept, [6, 6]]


def test_task_3_nothing_follows_an_end_token():
    """Even if further drafts are right."""
    (found,) = verify_rows(logits_for([2, END, 1, 8]), [row()], [[2, END, 1]])
    assert tokens(found) == [2, END]


@pytest.mark.parametrize(("number", "kept"), [(0.45, [0, 3]), (0.55, [2])])
def test_task_3_drafts_of_a_model_are_kept_as_rejection_sampling_says(number, kept):
    """The draft 0 has 0.5 by the model and 1 by the draft model; a rejected one is drawn from the rest."""
    sampled = row(temp=1.0)
    sampled.uniform = lambda place, purpose=DRAW: number if purpose == ACCEPT else (0.6, 0.99)[place]
    one = mx.array([[1.0, 0, 0, 0]])
    (found,) = verify_rows(mx.log(mx.array([P] * 2)), [sampled], [[0]], draft_probs=[one])
    assert tokens(found) == kept


def test_task_3_a_seeded_answer_does_not_depend_on_drafts_and_neighbours():
    """Logits that depend on all tokens before; drafts that are right, wrong, and half right."""

    def after(before):
        return mx.array(np.random.default_rng([1, *before]).standard_normal(8).astype(np.float32))

    def answer(drafts_of, neighbours):
        mine, others = row(temp=1.0), [row(temp=1.0, top_k=3) for _ in range(neighbours)]
        while len(mine.tokens) < 12:
            drafts = drafts_of(mine.tokens)
            positions = [after([*mine.tokens, *drafts[:place]]) for place in range(len(drafts) + 1)]
            logits = mx.stack([after([7])] * neighbours + positions)
            mine.accept(tokens(verify_rows(logits, [*others, mine], [()] * neighbours + [drafts])[-1]))
        return mine.tokens[:12]

    alone = answer(lambda before: [], 0)
    for drafts_of in (
        lambda before: alone[len(before) : len(before) + 3],
        lambda before: [1, 2],
        lambda before: [*alone[len(before) : len(before) + 1], 3],
    ):
        assert answer(drafts_of, 2) == alone


def test_task_3_a_fault_stays_in_its_row():
    """NaN is the error of that row alone, greedy or sampled."""
    logits = mx.array([[0, 1, 0], [0, np.nan, 0], [0, np.nan, 0], [0, 0, 99]])
    rows = [row(), row(), row(temp=1.0), row(temp=1.0)]
    found = verify_rows(logits, rows, [()] * 4)
    assert [type(each[0].error) for each in found] == [type(None), NumericError, NumericError, type(None)]
    assert [found[0][0].token_id, found[3][0].token_id] == [1, 2]
