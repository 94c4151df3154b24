"""Dense caches of requests that have ended: which are kept, and for whom."""

import random
from collections import Counter

import mlx.core as mx
import pytest

from tiny_llm.engine import dense
from tiny_llm.engine.dense import DenseRunner

from ..support.generation.dense_loop import LENGTH, Loop, assert_answered, right_then_wrong

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def test_a_kept_cache_saves_the_beginning_of_a_prompt(model):
    first = model.prompts[2]
    turns = [first, [*first, *model.answer(first), *model.prompts[1]]]
    computed = {}
    for keeps in (0, 1):
        loop = Loop(model, keeps=keeps, step_tokens=512)
        for prompt in turns:
            loop.add(prompt)
            model.forget()
            loop.run()
        assert_answered(model, loop)
        computed[keeps] = model.tokens
        assert model.made == 1 - keeps
    assert computed[0] == len(turns[1]) + LENGTH - 1
    found = loop.states[1].cached_tokens
    assert found > len(first)
    assert computed[1] == computed[0] - found


def test_the_newest_caches_are_kept_and_others_released(model):
    loop = Loop(model, keeps=2, step_tokens=512)
    prompts = [[number, *model.prompts[2]] for number in range(4)]

    def answer(prompt):
        loop.add(prompt, 2)
        loop.run()
        return model.made, model.released

    assert [answer(prompt) for prompt in prompts] == [(1, 0), (2, 0), (3, 0), (4, 1)]
    assert answer(prompts[3]) == (4, 2)  # the end of the last one is seen here
    assert answer(prompts[0]) == (5, 2)
    assert_answered(model, loop)
    loop.runner.forget()
    assert model.released == model.made


def test_a_request_takes_the_cache_with_the_longest_beginning(model):
    prompt = model.prompts[2]
    loop = Loop(model, keeps=3, step_tokens=512)
    for length in (9, 30, 15):
        loop.add([*prompt[:length], *model.prompts[1]], 2)
    loop.run()
    assert model.made == 3
    model.forget()
    found = loop.add(prompt, 2)
    loop.run()
    assert model.made == 0
    assert 28 <= found.cached_tokens <= 30
    assert model.tokens == len(prompt) - found.cached_tokens + 1
    assert_answered(model, loop)


def test_no_cache_is_found_under_another_salt(model):
    loop = Loop(model, keeps=1, step_tokens=512)
    for salt in ("one", "two", "one"):
        loop.add(model.prompts[2], 2, salt=salt)
        loop.run()
    assert loop.states[2].cached_tokens > 0  # its pages are there, but its cache is that of the other salt
    assert model.made == 3
    assert_answered(model, loop)


def test_rejected_drafts_are_not_taken_for_the_tokens_in_their_place(model):
    """The request ends right after them, and pages of an earlier one have its text."""
    prompt, answer = model.prompts[2], model.answer(model.prompts[2])
    wrong = right_then_wrong(model, 1)
    loop = Loop(model, keeps=1, step_tokens=512, drafts=lambda state: wrong(state) if state.id == "1" else ())
    loop.add(prompt)
    loop.run()
    drafting = loop.add(prompt)
    loop.step()
    loop.step()
    assert drafting.output_ids == answer[:3]
    loop.scheduler.cancel(drafting)
    again = loop.add([*prompt, *answer])
    loop.step()
    assert again.cached_tokens > len(prompt) + 3
    assert mx.allclose(loop.logits[-1], model.scores(again.prompt_ids)[-1], atol=1e-4)


def test_tokens_in_pages_of_a_running_request_are_computed_in_chunks(model, monkeypatch):
    monkeypatch.setattr(dense, "prefill_chunk", lambda: 16)
    evaluated = []
    monkeypatch.setattr(dense, "eval_caches", lambda caches: evaluated.append(caches[0].offset))
    prompt = model.prompts[2]
    loop = Loop(model, step_tokens=512)
    loop.add(prompt)
    loop.step()
    assert evaluated == []
    second = loop.add([*prompt, *model.prompts[1]])
    model.forget()
    loop.step()
    found = second.cached_tokens
    assert found > 32
    chunks = [min(16, found - start) for start in range(0, found, 16)]
    assert model.shapes == [*((1, chunk) for chunk in chunks), (1, 1), (1, len(second.prompt_ids) - found)]
    assert evaluated == [min(found, start + 16) for start in range(0, found, 16)]
    loop.run()
    assert_answered(model, loop)


def test_a_chunk_inside_a_prompt_is_evaluated(model, monkeypatch):
    evaluated = []
    monkeypatch.setattr(dense, "eval_caches", lambda caches: evaluated.append(caches[0].offset))
    loop = Loop(model, step_tokens=16)
    loop.add(model.prompts[2])
    loop.step()
    loop.step()
    assert evaluated == [16, 32]


def test_it_goes_on_after_it_forgot_everything(model):
    loop = Loop(model, keeps=1)
    for prompt in model.prompts[:3]:
        loop.add(prompt)
    for _ in range(4):
        loop.step()
    loop.runner.forget()
    loop.run()
    assert_answered(model, loop)


def test_only_a_gpu_starts_steps_at_once(model, monkeypatch):
    runner = DenseRunner(model)
    for gpu in (False, True):
        monkeypatch.setattr(dense, "computes_on_gpu", lambda gpu=gpu: gpu)
        assert runner.starts_at_once is gpu


@pytest.mark.parametrize("seed", range(2))
def test_random_requests(model, seed):
    """Chunks, drafts, forks, preemptions, found pages, ends and steps ahead, in any order."""
    rng = random.Random(seed)
    drafts = {right: right_then_wrong(model, right) for right in range(3)}

    def sometimes(state):
        return drafts[rng.randrange(3)](state) if state.choice == 0 and rng.random() < 0.2 else ()

    loop = Loop(
        model,
        keeps=rng.randrange(4),
        pages=rng.choice([60, 200]),
        step_tokens=rng.choice([16, 64]),
        ahead=rng.random() < 0.7,
        drafts=sometimes,
    )

    def cancel():
        if rng.random() < 0.1 and loop.scheduler.running:
            loop.scheduler.cancel(rng.choice(loop.scheduler.running))

    for _ in range(60):
        if rng.random() < 0.3:
            prompt = rng.choice(model.prompts)
            prompt = [*prompt, *rng.choice([[], model.answer(prompt)])]
            options = {"choices": rng.choice([1, 1, 3]), "wants_prompt_logprobs": rng.random() < 0.2}
            loop.add(prompt, rng.randint(1, LENGTH), salt=rng.choice("ab"), **options)
        loop.step(cancel)
    loop.run()
    assert_answered(model, loop)
    assert Counter(state.reason for state in loop.states)["length"] > 3
