"""Prefill: logits of the last token only, and no copies between the chunks."""

import mlx.core as mx
import pytest

from tiny_llm.batch import batch_generate
from tiny_llm.generate import speculative_generate, stream_generate
from tiny_llm.models import dispatch_model
from tiny_llm.paged_kv_cache import TinyKvPagedCache

from ..support.generation.byte_text import AsciiTokenizer
from ..support.models.checkpoints import checkpoint, each_family, tokens
from ..support.models.logits import assert_logits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

PROMPT = "The quick brown fox jumps over the lazy dog"
WEEKS = pytest.mark.parametrize("week", [1, 2, 3])


def make(week, family="qwen2", **options):
    return dispatch_model("a folder", checkpoint(family, layers=2, **options), week, dtype=mx.float32)


def some_tokens(week, length, seed=0):
    """Of two rows, but for week 3: a paged cache holds one."""
    return tokens(1 if week == 3 else 2, length, seed=seed)


def record_scores(model) -> list[tuple[int, ...]]:
    """The shapes of all inputs of the map to logits."""
    shapes, score = [], model.score

    def recorded(x):
        shapes.append(x.shape[:-1])
        return score(x)

    model.score = recorded
    return shapes


@WEEKS
@each_family
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("length", [1, 5, 37])
def test_the_next_logits_are_the_last_of_all(length, week, family, tied):
    model, inputs = make(week, family, tied=tied), some_tokens(week, length)
    if week == 1:
        assert_logits(model.next_logits(inputs), model(inputs)[:, -1])
    else:
        plain, cache = model.create_kv_cache(), model.create_kv_cache()
        expected = model(inputs, 0, plain)[:, -1]
        assert_logits(model.next_logits(inputs, 0, cache), expected)
        assert [layer.offset for layer in cache] == [length, length]
        more = some_tokens(week, 3, seed=1)  # which see what all layers have kept
        assert_logits(model(more, length, cache), model(more, length, plain))


@WEEKS
@pytest.mark.parametrize("length", [5, 37])
def test_the_last_block_computes_one_position(length, week):
    """The other blocks compute all positions, as the next block attends to them."""
    model = make(week)
    shapes = []

    def record(block):
        mlp = block.mlp

        def recorded(x, **options):
            shapes.append(x.shape[:-1])
            return mlp(x, **options)

        block.mlp = recorded

    for block in model.layers_inner:
        record(block)
    inputs = some_tokens(week, length)
    model.next_logits(inputs, *(() if week == 1 else (0, model.create_kv_cache())))
    assert shapes == [inputs.shape, (inputs.shape[0], 1)]


@WEEKS
@pytest.mark.parametrize("step", [10, 512])
def test_a_stream_scores_one_position_at_a_time(week, step):
    model = make(week)
    shapes = record_scores(model)
    list(stream_generate(model, AsciiTokenizer(), PROMPT, max_tokens=5, prefill_step=step))
    assert set(shapes) == {(1,)}


def test_a_draft_scores_one_position_at_a_time_and_the_target_all_drafts():
    model, draft = make(2), make(2, seed=1)
    shapes, drafted = record_scores(model), record_scores(draft)
    speculative_generate(draft, model, AsciiTokenizer(), AsciiTokenizer(), PROMPT)
    assert set(drafted) == {(1,)}
    assert shapes[0] == (1,)
    assert max(shapes[1:]) == (1, 5)


@pytest.mark.parametrize("week", [2, 3])
def test_a_batch_scores_one_position_of_each_request(week):
    model = make(week)
    shapes = record_scores(model)
    batch_generate(model, AsciiTokenizer(), [PROMPT, "Hello"], 60, batch_size=2, prefill_step=10)
    assert set(shapes) == {(1,), (2,)}


def test_no_page_is_gathered_while_a_model_reads_and_answers(monkeypatch):
    model = make(3)

    def gathered(cache):
        raise AssertionError("a dense copy of all tokens was made")

    monkeypatch.setattr(TinyKvPagedCache, "gather_dense", gathered)
    list(stream_generate(model, AsciiTokenizer(), PROMPT, max_tokens=5, prefill_step=10))
    batch_generate(model, AsciiTokenizer(), [PROMPT, "Hello"], 60, batch_size=2, prefill_step=10)
    assert model.page_pool.num_free_pages == model.page_pool.num_pages > 0
