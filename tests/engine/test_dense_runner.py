"""Steps on dense caches: whatever the plans, answers are those of the course's loop, token for token."""

import mlx.core as mx
import pytest

from ..support.generation.dense_loop import LENGTH, Loop, assert_answered, right_then_wrong

pytestmark = pytest.mark.usefixtures("on_the_cpu")


@pytest.mark.parametrize("step_tokens", [16, 512])
def test_answers_are_those_of_the_course(model, step_tokens):
    """With few tokens in a step, prompts come in chunks."""
    loop = Loop(model, step_tokens=step_tokens)
    for prompt in model.prompts:
        loop.add(prompt)
    assert loop.run() == [model.answer(prompt) for prompt in model.prompts]


def test_requests_decode_in_one_call(model):
    loop = Loop(model)
    for prompt in model.prompts[:2] * 2:
        loop.add(prompt)
    loop.step()
    shapes = model.shapes[:]
    loop.step()
    assert [shape[0] for shape in shapes] == [1] * 4
    assert model.shapes[4:] == [(4, 1)]
    loop.scheduler.cancel(loop.states[0])
    loop.step()
    assert model.shapes[5] in [(3, 1), (4, 1)]  # an idle slot is cheaper than a copy of the others
    for state in loop.states[1:3]:
        loop.scheduler.cancel(state)
    loop.step()
    assert model.shapes[6:] == [(1, 1)]
    loop.run()
    assert_answered(model, loop)


def test_a_request_that_comes_takes_the_slot_of_one_that_went(model):
    loop = Loop(model, max_running=2)
    for number, prompt in enumerate(model.prompts):
        loop.add(prompt, LENGTH - number)
    loop.run()
    assert_answered(model, loop)
    assert {rows for rows, _ in model.shapes} == {1, 2}


def test_a_prompt_of_one_token_that_is_computed_beside_others(model):
    """Its caches are empty when it takes part in their step."""
    loop = Loop(model)
    assert len(model.prompts[3]) == 1
    for prompt in [model.prompts[3]] * 2:
        loop.add(prompt)
    loop.step()
    assert model.shapes == [(2, 1)]
    loop.run()
    assert_answered(model, loop)


@pytest.mark.parametrize("right", [0, 1, 3])
def test_rejected_drafts_leave_the_caches(model, right):
    loop = Loop(model, drafts=right_then_wrong(model, right), step_tokens=512)
    for prompt in model.prompts:
        loop.add(prompt)
    loop.run()
    assert_answered(model, loop)
    assert loop.scheduler.counters.drafted_tokens > loop.scheduler.counters.accepted_tokens >= right


def test_requests_with_and_without_drafts_take_turns_in_a_batch(model):
    """One leaves the batch in each second step."""
    wrong = right_then_wrong(model, 1)
    loop = Loop(model, drafts=lambda state: wrong(state) if state.num_output % 3 == 1 else ())
    for number, prompt in enumerate(model.prompts):
        loop.add(prompt, LENGTH + number)
    loop.run()
    assert_answered(model, loop)
    assert {1, 2, 3} <= {rows for rows, _ in model.shapes}


@pytest.mark.parametrize("keeps", [0, 2])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_preempted_requests_go_on_with_what_is_left(model, keeps, prefix_cache):
    loop = Loop(model, keeps=keeps, pages=16, prefix_cache=prefix_cache)
    for _ in range(3):
        for prompt in (model.prompts[0], model.prompts[1], model.prompts[3]):
            loop.add(prompt, 20)
    while plan := loop.step():
        assert model.made - model.released <= len(plan.rows) + keeps
    assert_answered(model, loop)
    assert loop.scheduler.counters.preemptions > 0
    loop.runner.forget()
    assert model.released == model.made


def test_several_answers_to_a_prompt(model):
    loop = Loop(model, step_tokens=16)
    for prompt, choices in zip(model.prompts, [3, 1, 2, 1, 2], strict=True):
        loop.add(prompt, choices=choices)
    loop.run()
    assert len(loop.states) == 9
    assert len({tuple(state.output_ids) for state in loop.states}) > 5
    assert_answered(model, loop)


@pytest.mark.parametrize("step_tokens", [16, 512])
def test_the_logits_of_a_prompt(model, step_tokens):
    loop = Loop(model, step_tokens=step_tokens)
    scored = loop.add(model.prompts[2], wants_prompt_logprobs=True)
    loop.add(model.prompts[1])
    loop.run()
    assert_answered(model, loop)
    found = mx.concatenate(loop.prompt_scores)
    assert len(loop.prompt_scores) == (1 if step_tokens == 512 else -(-len(model.prompts[2]) // 16))
    assert mx.allclose(found[: len(scored.prompt_ids)], model.scores(model.prompts[2]), atol=1e-4)


@pytest.mark.parametrize("keeps", [0, 1])
def test_steps_that_start_before_the_tokens_are_known(model, keeps):
    """Of requests that end by their length, and of one that is cancelled meanwhile."""
    loop = Loop(model, ahead=True, keeps=keeps)
    for number, prompt in enumerate(model.prompts):
        loop.add(prompt, LENGTH - number)
    for number in range(6):
        loop.step(lambda now=number == 4: now and loop.scheduler.cancel(loop.states[0]))
    loop.run()
    assert loop.started_ahead > LENGTH // 2
    assert loop.states[0].reason == "cancelled"
    loop.add([*model.prompts[0], *model.answer(model.prompts[0])])  # finds what the cancelled one left
    loop.run()
    assert_answered(model, loop)
