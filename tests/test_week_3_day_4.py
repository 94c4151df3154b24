"""Week 3, day 4: speculative decoding. A small model drafts, the large one verifies in one pass."""

import mlx.core as mx
import pytest

from tiny_llm.sampling.params import Sampling

from .support.generation.byte_text import (
    AsciiTokenizer,
    ByteDetokenizer,
    ByteTokenizer,
    LookAheadDetokenizer,
    as_text,
)
from .support.generation.fake_models import CachedFake, PagedFake
from .support.generation.rules import failing_after, greedy, random_rule, scripted
from .support.models.checkpoints import checkpoint
from .support.page_pool import assert_consistent
from .support.refusal import refused
from .tiny_llm_base import Qwen2ModelWeek3, speculative_generate, stream_generate

RULE = random_rule(1)
PROMPTS = ["Hello", "a", "The quick brown fox", "x" * 40]
DRAFTS = {
    "perfect": RULE,
    "good": random_rule(7, like=RULE, noise=0.3),
    "poor": random_rule(7, like=RULE, noise=2.0),
    "hopeless": random_rule(8),
    "mute": scripted({prompt: [] for prompt in PROMPTS}),
    "narrow": random_rule(7, like=RULE, noise=0.3, width=257),
    "wide": lambda context: [*RULE(context), 99.0],
}


def speculate(draft, model, prompt, **options):
    tokenizer = ByteTokenizer()
    return speculative_generate(draft, model, tokenizer, tokenizer, prompt, **options)


def test_task_1_tokens_after_the_end_token_are_dropped():
    """The model may accept drafts after the end token."""
    rule = scripted({"hi": [*b"abc", ord("!"), *b"xyz"]})
    tokenizer = ByteTokenizer()
    tokenizer.eos_token_ids = {ord("!")}
    assert speculative_generate(CachedFake(rule), CachedFake(rule), tokenizer, tokenizer, "hi") == "abc"


@pytest.mark.parametrize("fake", [CachedFake, PagedFake], ids=["dense", "paged"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_task_1_speculative_output_equals_that_of_the_target_model(fake, draft, capsys):
    """For any drafts; the fakes check that each call continues from the tokens in their cache."""
    for prompt in PROMPTS:
        assert speculate(fake(DRAFTS[draft]), fake(RULE), prompt) == as_text(greedy(RULE, prompt))
        assert capsys.readouterr().out == ""


def test_task_1_a_perfect_draft_saves_four_of_five_steps():
    """Four drafts and one more token for each pass of the model."""
    answer = list(b"0123456789" * 2)
    model, draft = (CachedFake(scripted({"ab": answer})) for _ in range(2))
    assert speculate(draft, model, "ab") == "0123456789" * 2
    assert model.calls == [(1, 2)] + [(1, 5)] * 4
    assert draft.calls[:2] == [(1, 3), (1, 1)]
    assert {rows for rows, _ in draft.calls} == {1}


def test_task_1_rejected_drafts_are_rewound():
    """One rejected draft in twenty costs one more pass; without a rewind all later drafts would be wrong."""
    rule = scripted({"ab": list(b"0123456789" * 2)})
    wrong = scripted({"ab012345": list(b"?")})
    model = CachedFake(rule)
    draft = CachedFake(lambda context: rule(context) + 2 * wrong(context))
    assert speculate(draft, model, "ab") == "0123456789" * 2
    assert len(model.calls) == 1 + 5


def test_task_1_a_hopeless_draft_costs_no_token():
    """Each pass of the model gives at least the token that it would have given alone."""
    model = CachedFake(scripted({"ab": list(b"012345")}))
    assert speculate(CachedFake(scripted({"ab": []})), model, "ab") == "012345"
    assert len(model.calls) == 1 + 6


@pytest.mark.parametrize("fake", [CachedFake, PagedFake], ids=["dense", "paged"])
def test_task_1_an_end_token_may_come_first(fake):
    """The answer is empty then."""
    model = fake(scripted({"hi": []}))
    assert speculate(fake(random_rule()), model, "hi") == ""


@pytest.mark.parametrize("detokenizer", [ByteDetokenizer, LookAheadDetokenizer])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_task_1_one_detokenizer_gets_all_tokens(detokenizer, shared):
    """A character may have tokens of two rounds."""
    text = "Grüße 🦙🦙 Größe"
    rule = scripted({"hi": list(text.encode())})
    tokenizer = ByteTokenizer(detokenizer, shared=shared)
    draft = CachedFake(random_rule(3, like=rule, noise=3.0))
    assert speculative_generate(draft, CachedFake(rule), ByteTokenizer(), tokenizer, "hi") == text


@pytest.mark.parametrize("contexts", [(None, 12), (12, None), (12, 40), (40, 12)])
def test_task_1_the_answer_ends_where_the_shorter_context_does(contexts):
    """No position beyond the context is computed."""
    answer = list(b"0123456789" * 5)
    draft, model = (CachedFake(scripted({"hello": answer}), context) for context in contexts)
    assert speculate(draft, model, "hello") == "0123456"
    assert max(cache.offset for cache in draft.caches + model.caches) <= 12


@pytest.mark.parametrize("failing", ["draft", "model"])
def test_task_1_caches_are_released_at_the_end_and_when_a_model_fails(failing):
    """The caches of both models; pages return to their pools."""
    rule = scripted({"hi": list(b"abcdefghijkl")})
    for length in (1, 5, 99):
        broken = failing_after(rule, length)
        draft = PagedFake(broken if failing == "draft" else rule, page_size=2)
        model = PagedFake(broken if failing == "model" else rule, page_size=2)
        if length < 20:
            with pytest.raises(ZeroDivisionError):
                speculate(draft, model, "hi")
        else:
            assert speculate(draft, model, "hi") == "abcdefghijkl"
        for pool in (draft.page_pool, model.page_pool):
            assert_consistent(pool)
            assert pool.num_free_pages == pool.num_pages


def test_task_1_tokenizers_of_two_vocabularies_are_refused():
    """If both have get_vocab; the same ids must mean the same text."""
    one, two, silent = ByteTokenizer(), ByteTokenizer(), ByteTokenizer()
    one.get_vocab = lambda: {"a": 0, "b": 1}
    two.get_vocab = lambda: {"b": 0, "a": 1}
    model = CachedFake(scripted({"hi": list(b"abc")}))
    with refused("draft_tokenizer", function="speculative_generate"):
        speculative_generate(model, model, one, two, "hi")
    assert model.calls == []
    for pair in [(one, one), (one, silent), (silent, two)]:
        assert speculative_generate(model, model, *pair, "hi") == "abc"


@pytest.mark.parametrize("prompt", ["", "x" * 8], ids=["empty", "long"])
def test_task_1_a_prompt_without_an_answer_is_refused(prompt):
    """The draft's context counts, too."""
    draft, model = CachedFake(RULE, context=8), CachedFake(RULE)
    with refused("prompt", function="speculative_generate"):
        speculate(draft, model, prompt)
    assert draft.caches + model.caches == []


def test_task_1_with_a_temperature_a_seed_repeats_the_answer():
    """Another seed gives another one; a temperature near 0 gives the greedy one."""

    def answer(**options):
        return speculate(
            CachedFake(DRAFTS["good"]), CachedFake(RULE, 60), "Hello", sampling=Sampling(**options)
        )

    assert answer(temp=1.0, seed=1) == answer(temp=1.0, seed=1) != answer(temp=1.0, seed=2)
    limit = 60 - len("Hello")
    assert answer(temp=1e-6) == as_text(greedy(RULE, "Hello", limit))


def test_task_1_whole_models_give_the_answer_of_the_target_model():
    """A draft of fewer layers with the same first ones, on pages, both."""
    weights, small = checkpoint(layers=3), checkpoint(layers=3)
    small.model.layers = small.model.layers[:2]
    small.args.num_hidden_layers = 2
    tokenizer = AsciiTokenizer()
    with mx.stream(mx.cpu):
        model, draft = (Qwen2ModelWeek3(each, page_size=7, dtype=mx.float32) for each in (weights, small))
        alone = stream_generate(model, tokenizer, "Hello", max_tokens=50)
        faster = stream_generate(model, tokenizer, "Hello", max_tokens=50, draft_model=draft)
        assert "".join(faster) == "".join(alone) != ""
    for pool in (model.page_pool, draft.page_pool):
        assert pool.num_free_pages == pool.num_pages > 0
