"""An engine with `batch_invariant`: at 16 bits, too, the numbers of an answer are those that it has alone."""

import mlx.core as mx
import pytest

from tiny_llm import LLM, ArgumentError, UnsupportedError
from tiny_llm.engine import Engine
from tiny_llm.models.invariance import why_not_invariant

from ..support.engine_requests import PROMPTS, request_of
from ..support.gpu import on_a_gpu
from ..support.refusal import refused

pytestmark = pytest.mark.usefixtures("on_the_cpu")


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def llm(request):
    return LLM("tiny", dtype=request.param, device="cpu")


def numbers(handle):
    """Tokens and log probabilities of each answer."""
    found = [[] for _ in range(handle.choices)]
    for event in handle:
        found[event.choice] += [(each.token_id, each.logprob, each.top) for each in event.logprobs or ()]
    return found


def test_batches_chunks_hits_and_drafts_change_no_bit(llm):
    requests = [request_of(llm, prompt, 20, logprobs=3) for prompt in PROMPTS]
    requests.append(request_of(llm, PROMPTS[2], 20, logprobs=3, sampling={"temp": 0.8, "seed": 3}, n=2))
    sizes = {"max_context": 512, "page_size": 8}
    with Engine(llm, **sizes, batch_invariant=True, lookup=False, prefix_cache=False) as engine:
        alone = [numbers(engine.submit(request)) for request in requests]
    with Engine(llm, **sizes, batch_invariant=True, step_tokens=50, max_running=16) as engine:
        for _ in range(2):  # the second time with pages that are found
            handles = [engine.submit(request) for request in requests]
            assert [numbers(handle) for handle in handles] == alone
        statistics = engine.statistics()
        assert statistics.prefix_hits > 0
        assert statistics.accepted_tokens > 0


def test_a_list_and_a_text_get_the_bits_of_an_engine(llm):
    """In batches of any size; chunks of prompts and found pages differ, too."""

    def numbers_of(results):
        return [
            [(entry.token_id, entry.logprob, entry.top) for entry in result.logprobs] for result in results
        ]

    options = {"max_tokens": 6, "logprobs": 2, "batch_invariant": True}
    with Engine(llm, max_context=512, batch_invariant=True) as engine:
        requests = [request_of(llm, prompt, 6, logprobs=2) for prompt in PROMPTS]
        expected = [numbers(engine.submit(request))[0] for request in requests]
    assert numbers_of(llm.generate(prompt, **options) for prompt in PROMPTS[:2]) == expected[:2]
    for size in (2, 5):
        assert numbers_of(llm.generate(PROMPTS, batch_size=size, **options)) == expected


def test_lists_that_cannot_promise_it_are_refused(llm):
    with refused("batch_invariant", error=UnsupportedError, function="LLM.generate"):
        LLM("tiny", device="cpu", draft_model="tiny").generate(["a"], batch_invariant=True)
    for prompts in ("a", ["a"]):
        with on_a_gpu(), refused("batch_invariant", function="LLM.generate"):
            llm.generate(prompts, batch_invariant=True)


def test_a_device_that_cannot_promise_it_is_refused(llm, monkeypatch):
    monkeypatch.setattr("tiny_llm.models.invariance.computes_on_gpu", lambda: True)
    with pytest.raises(ArgumentError, match=r"^Engine: batch_invariant: got True with a GPU, whose products"):
        Engine(llm, batch_invariant=True)


def test_weights_that_another_library_multiplies_are_refused(llm, monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert why_not_invariant(llm.model) is None  # quantized weights
    dense = LLM("tiny", dtype="float32", device="cpu").model
    dense.layers_inner[0].mlp.w_up = mx.zeros((1, 1))
    assert "Accelerate" in (why_not_invariant(dense) or "")
