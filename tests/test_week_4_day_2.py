"""Week 4, day 2: the scheduler. Which tokens of which requests a step computes, and what comes after it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import Plan, RequestState, Row, Scheduler, policy
from tiny_llm.scheduler.policy import Limits, choose
from tiny_llm.scheduler.queues import Queues

from .support.counted_pages import CountedPages
from .support.refusal import refused


def request(name: str, length: int, computed: int = 0, **options) -> RequestState:
    state = RequestState(name, [7] * length, max_tokens=20, **options)
    state.computed = computed
    return state


def queued(running: list[RequestState] = (), waiting: list[RequestState] = ()) -> Queues:
    queues = Queues()
    for state in [*running, *waiting]:
        queues.add(state)
    for state in running:
        queues.start_next()
        state.prefill_end = len(state.token_ids)
    return queues


def limits(step_tokens: int = 100, max_running: int = 8, watermark: Fraction = Fraction(0)) -> Limits:
    return Limits(step_tokens, max_running, watermark)


def names(states) -> str:
    return " ".join(state.id for state in states)


def shown(rows: list[Row]) -> str:
    """`A:3-8` is a row of the tokens 3 to 7 of A; a star is a row whose last token has logits."""
    return " ".join(
        f"{row.state.id}:{row.start}-{row.stop}{'*' * (row.logits - len(row.drafts))}" for row in rows
    )


def prefill(states: list[RequestState], budget: int) -> tuple[str, int]:
    rows: list[Row] = []
    left = policy._prefill(states, budget, rows, CountedPages())
    return shown(rows), left


def start(queues: Queues, budget: int = 100, pages: int = 100, **options) -> tuple[str, str]:
    """The requests that start, and the rows of their first chunks."""
    rows: list[Row] = []
    started = policy._start(queues, CountedPages(pages), limits(**options), budget, rows)
    return names(started), shown(rows)


def test_task_1_a_chunk_is_as_long_as_the_budget_allows():
    assert prefill([request("A", 14)], budget=10) == ("A:0-10", 0)


def test_task_1_a_chunk_begins_where_the_last_one_ended():
    """The last chunk has logits, because the first token of the answer follows."""
    assert prefill([request("A", 14, computed=10)], budget=10) == ("A:10-14*", 6)


def test_task_1_prompts_share_the_budget_in_the_order_of_arrival():
    prompts = [request(name, 6) for name in "ABC"]
    assert prefill(prompts, budget=9) == ("A:0-6* B:0-3", 0)


def test_task_1_there_is_no_row_without_a_token():
    assert prefill([request("A", 5)], budget=0) == ("", 0)


def test_task_1_requests_start_while_the_budget_lasts():
    queues = queued(waiting=[request("A", 3), request("B", 9), request("C", 2)])
    assert start(queues, budget=8) == ("A B", "A:0-3* B:0-5")
    assert (names(queues.running), names(queues.waiting)) == ("A B", "C")


def test_task_1_nobody_overtakes_a_request_that_does_not_fit():
    """A needs 5 pages and there are 4. B would fit, but A is older."""
    queues = queued(waiting=[request("A", 20), request("B", 2)])
    assert start(queues, pages=4) == ("", "")
    assert (names(queues.running), names(queues.waiting)) == ("", "A B")


def test_task_1_each_answer_of_a_request_takes_a_place():
    """A runs; B has 2 answers and C has 3: at most 5 places are not enough for all."""
    queues = queued([request("A", 4, computed=4)], [request("B", 2, choices=2), request("C", 2, choices=3)])
    assert start(queues, max_running=5)[0] == "B"


def test_task_1_a_start_leaves_pages_to_those_that_run():
    """A quarter of a page for each place that is taken, rounded up; the first request needs none."""
    pages = CountedPages()
    queues = queued(waiting=[request(name, 2) for name in "ABCDEF"])
    policy._start(queues, pages, limits(watermark=Fraction(1, 4)), 100, [])
    assert pages.spares == [0, 1, 1, 1, 1, 2]


def test_task_1_a_request_that_starts_again_has_an_answer_to_prefill():
    """Its pages were taken from it after two tokens of its answer."""
    state = request("A", 3)
    state.token_ids.extend([8, 9])
    assert start(queued(waiting=[state])) == ("A", "A:0-5*")
    assert state.prefill_end == 5


def chosen(queues: Queues, step_tokens: int, bound=None) -> str:
    return shown(choose(queues, CountedPages(), limits(step_tokens), bound).rows)


def decoding(name: str, drafts: int = 0) -> RequestState:
    return request(name, 10, computed=9, drafts=[5] * drafts)


def test_task_2_decodes_come_first():
    """Each running answer gets its token, and the prompt what is left of 8 tokens."""
    queues = queued([decoding("A"), decoding("B"), request("C", 30, computed=4)])
    assert chosen(queues, 8) == "A:9-10* B:9-10* C:4-10"


def test_task_2_prompts_that_run_come_before_those_that_wait():
    queues = queued([decoding("A"), request("B", 6, computed=2)], [request("C", 30)])
    assert chosen(queues, 12) == "A:9-10* B:2-6* C:0-7"
    assert names(queues.running) == "A B C"


@pytest.mark.parametrize("prompt", ["runs", "waits"])
def test_task_2_drafts_leave_half_of_the_budget_to_prompts(prompt):
    """11 tokens are left: 5 for drafts, the rest for the prompt."""
    last = request("B", 30)
    queues = queued([decoding("A", 20), last]) if prompt == "runs" else queued([decoding("A", 20)], [last])
    assert chosen(queues, 12) == "A:9-15* B:0-6"


def test_task_2_without_prompts_drafts_may_use_the_budget():
    assert chosen(queued([decoding("A", 8)]), 12) == "A:9-18*"


def test_task_2_answers_share_the_budget_of_drafts():
    """12 tokens less two decodes, and half of that: 5 drafts, 3 of A and 2 of B."""
    queues = queued([decoding("A", 3), decoding("B", 3), request("C", 30)])
    assert chosen(queues, 12) == "A:9-13* B:9-12* C:0-5"


def test_task_2_a_bound_limits_the_prompts_beside_answers():
    """It is asked for the number of rows: here a token of each answer, and two drafts."""
    asked = []

    def bound(rows: int) -> int:
        asked.append(rows)
        return 3

    assert chosen(queued([decoding("A", 2), decoding("B")], [request("C", 30)]), 50, bound) == (
        "A:9-12* B:9-10* C:0-3"
    )
    assert asked == [4]


def test_task_2_a_bound_never_adds_to_the_budget():
    for bound in (lambda rows: 1000, lambda rows: None):
        assert chosen(queued([decoding("A")], [request("B", 30)]), 8, bound) == "A:9-10* B:0-7"


def test_task_2_a_prompt_alone_has_no_bound():
    """Nobody waits for a token."""
    assert chosen(queued(waiting=[request("A", 30)]), 8, lambda rows: 1) == "A:0-8"


def test_task_2_no_step_starts_what_it_preempts(monkeypatch):
    """B lost its pages to A in this step. The copies that A needs are a part of the choice, too."""
    first, second = decoding("A"), request("B", 10)

    def decodes(queues, tables, copies):
        copies.append((4, 2))
        return [first], [second]

    monkeypatch.setattr(policy, "_decodes", decodes)
    result = choose(queued([first], [second]), CountedPages(), limits())
    assert (shown(result.rows), result.copies) == ("A:9-10*", [(4, 2)])
    assert (result.preempted, result.started) == ([second], [])


def planned(step_tokens: int, *states: RequestState) -> tuple[Scheduler, Plan, CountedPages]:
    """A scheduler whose first plan has rows of these requests."""
    scheduler = Scheduler(PagePool(1, 4), step_tokens, max_running=4, prefix_cache=False)
    scheduler._tables = pages = CountedPages()
    for state in states:
        scheduler.add(state)
    return scheduler, scheduler.plan(), pages


def verifying(*drafts: int) -> tuple[RequestState, Scheduler, Plan, CountedPages]:
    """A request that has 5 computed tokens, one that is not, and drafts, in an open plan."""
    state = request("A", 5)
    scheduler, plan, pages = planned(20, state)
    scheduler.commit(plan, {state: [1]})
    state.drafts = drafts
    return state, scheduler, scheduler.plan(), pages


def test_task_3_a_token_comes_after_the_last_chunk():
    """A prompt of 6 tokens in steps of 4."""
    state = request("A", 6)
    scheduler, plan, _ = planned(4, state)
    scheduler.commit(plan, {})
    assert (state.computed, state.output_ids) == (4, [])
    scheduler.commit(scheduler.plan(), {state: [9]})
    assert (state.computed, state.output_ids, state.pending) == (6, [9], 1)
    assert (scheduler.counters.steps, scheduler.counters.recomputed_tokens) == (2, 0)


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_task_3_tokens_of_rejected_drafts_do_not_count(accepted):
    """The plan computed 9 tokens: 5 of the prompt before, the first of the answer, and three drafts."""
    state, scheduler, plan, pages = verifying(5, 6, 7)
    scheduler.commit(plan, {state: [*[5, 6, 7][:accepted], 9]})
    assert state.output_ids == [1, *[5, 6, 7][:accepted], 9]
    assert state.computed == 6 + accepted
    assert ("shrink", "A", 6 + accepted) in pages.calls, "pages of rejected drafts must go back"
    assert len(state.drafts) == 0, "the drafts were verified"
    assert (scheduler.counters.drafted_tokens, scheduler.counters.accepted_tokens) == (3, accepted)


@pytest.mark.parametrize(
    "tokens", [None, [], [5, 6, 7, 9, 9], [6, 9]], ids=["none", "empty", "too many", "not a draft"]
)
def test_task_3_wrong_tokens_are_refused_and_change_nothing(tokens):
    """The same plan can be committed with the right ones."""
    state, scheduler, plan, _ = verifying(5, 6, 7)
    with refused("tokens", function="Scheduler.commit"):
        scheduler.commit(plan, {} if tokens is None else {state: tokens})
    assert (state.computed, state.output_ids, scheduler.counters.steps) == (5, [1], 1)
    scheduler.commit(plan, {state: [5, 9]})
    assert state.output_ids == [1, 5, 9]


def test_task_3_a_request_that_has_finished_since_gets_no_token():
    """Whether the model's answer has a token for it or not."""
    for with_token in (False, True):
        gone, other = request("A", 3), request("B", 3)
        scheduler, plan, _ = planned(20, gone, other)
        scheduler.cancel(gone)
        scheduler.commit(plan, {gone: [8], other: [9]} if with_token else {other: [9]})
        assert (gone.output_ids, other.output_ids) == ([], [9])


def test_task_3_each_answer_of_a_fork_gets_its_token():
    state = request("A", 3, choices=2)
    scheduler, plan, _ = planned(20, state)
    first, second = scheduler.fork(state)
    scheduler.commit(plan, {first: [8], second: [9]})
    assert (first.output_ids, second.output_ids) == ([8], [9])
    assert (first.computed, second.computed) == (3, 3)


def test_task_3_a_plan_is_committed_once():
    state = request("A", 3)
    scheduler, plan, _ = planned(20, state)
    scheduler.commit(plan, {state: [9]})
    with refused("plan", function="Scheduler.commit"):
        scheduler.commit(plan, {state: [9]})
    assert scheduler.plan().rows, "the next step can be planned"


def test_task_3_pages_are_named_once_their_tokens_are_computed():
    scheduler, plan, pages = planned(4, request("A", 6))
    scheduler.commit(plan, {})
    assert ("register", "A", 4) in pages.calls


def test_task_3_what_was_computed_before_a_preemption_is_remembered():
    """6 tokens were computed once. The first chunk after a new start has 4 of them."""
    state = request("A", 6)
    scheduler, plan, _ = planned(4, state)
    state.furthest = 6
    scheduler.commit(plan, {})
    assert (state.furthest, scheduler.counters.recomputed_tokens) == (6, 4)
