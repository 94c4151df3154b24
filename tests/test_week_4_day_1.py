"""Week 4, day 1: one step computes new tokens of many requests, the rows of a packed batch over pages."""

import mlx.core as mx
import pytest

from tiny_llm.cache.storage import PagedStorage
from tiny_llm.models import packed
from tiny_llm.models.packed import Batch, PackedRequest, packed_logits

from .support.models.checkpoints import VOCABULARY, checkpoint
from .support.models.logits import assert_logits
from .support.refusal import refused
from .tiny_llm_base import Qwen2ModelWeek2

LAYERS, PAGES, PAGE_SIZE, HEADS, HEAD_DIM = 2, 8, 16, 2, 32
HIDDEN = 128

# The step of the chapter's table: A decodes, B is at the last chunk of its prompt, C verifies two drafts.
A = PackedRequest([7], 42, [0, 1, 3])
B = PackedRequest([16, 17, 18, 19, 20], 21, [5, 2])
C = PackedRequest([8, 9, 10], 12, [4], num_logits=3)


def empty_pages(fill=0.0, layers=LAYERS):
    """Pages whose stale slots all hold `fill`."""
    storage = PagedStorage(layers, PAGES, HEADS, PAGE_SIZE, HEAD_DIM, mx.float32)
    shape = (PAGES, HEADS, PAGE_SIZE, HEAD_DIM)
    storage.keys = [mx.full(shape, fill) for _ in range(layers)]
    storage.values = [mx.full(shape, fill) for _ in range(layers)]
    mx.eval(storage.keys, storage.values)
    return storage


def slots_of(pages, positions):
    """Where tokens are, counted over all pages."""
    return [pages[place // PAGE_SIZE] * PAGE_SIZE + place % PAGE_SIZE for place in positions]


def written_slots(pages, stale):
    """The slots whose content is no longer `stale`."""
    changed = mx.any(pages != stale, axis=(1, 3))
    return [slot for slot, is_new in enumerate(mx.flatten(changed).tolist()) if is_new]


@pytest.fixture(scope="module")
def model():
    return Qwen2ModelWeek2(checkpoint(layers=LAYERS), dtype=mx.float32)


# Task 1: the rows of a step


def test_task_1_rows_are_the_new_tokens_of_all_requests():
    batch = Batch([A, B, C], empty_pages())
    assert batch.token_ids.tolist() == [7, 16, 17, 18, 19, 20, 8, 9, 10]
    assert batch.counts == [1, 5, 3]
    assert batch.contexts == [42, 21, 12]


def test_task_1_positions_are_those_in_the_request():
    """The last new token is at position context - 1."""
    assert Batch([A, B, C], empty_pages()).positions == [41, *range(16, 21), *range(9, 12)]


def test_task_1_each_new_token_has_its_slot_in_the_pages_of_its_request():
    """A writes slot 9 of page 3, B the first slots of page 2, C slots of page 4."""
    step = Batch([A, B, C], empty_pages()).step
    assert mx.array(step.slots).tolist() == [3 * 16 + 9, *range(32, 37), *range(64 + 9, 64 + 12)]


@pytest.mark.parametrize(
    ("requests", "rows"),
    [
        ([A, B, C], [0, 5, 6, 7, 8]),
        ([C, B, A], [0, 1, 2, 7, 8]),
        ([B], [4]),
    ],
    ids=["ABC", "CBA", "B"],
)
def test_task_1_the_last_rows_of_a_request_have_logits(requests, rows):
    assert Batch(requests, empty_pages()).logit_rows == rows


def test_task_1_a_chunk_inside_a_prompt_has_no_logits():
    inside = PackedRequest([3, 4, 5, 6], 4, [7], num_logits=0)
    assert Batch([inside], empty_pages()).logit_rows == []
    assert Batch([A, inside, C], empty_pages()).logit_rows == [0, 5, 6, 7]


def test_task_1_a_batch_may_be_invariant():
    assert not Batch([A], empty_pages()).batch_invariant
    assert Batch([A], empty_pages(), batch_invariant=True).batch_invariant


@pytest.mark.parametrize(
    ("requests", "argument"),
    [
        ([PackedRequest([1], 1, [PAGES])], "block_tables"),
        ([PackedRequest([1], 17, [0])], "block_tables"),
        ([PackedRequest([1, 2], 1, [0])], "context_lens"),
        ([PackedRequest([1], 3, [0]), PackedRequest([2], 3, [0])], "block_tables"),
    ],
    ids=[
        "a page outside the pool",
        "a page too few",
        "more new tokens than tokens",
        "one slot for two tokens",
    ],
)
def test_task_1_wrong_pages_are_refused_before_anything_is_computed(requests, argument):
    """With its pages checked, no layer reads or writes the pages of another request."""
    with pytest.raises(ValueError, match=argument):
        Batch(requests, empty_pages())


def test_task_1_one_array_for_keys_and_values_is_refused():
    storage = empty_pages()
    storage.values[1] = storage.keys[1]
    with refused(r"values\[1\]", function="PagedStorage"):
        Batch([A], storage)


# Task 2: a layer


def vectors(number, seed):
    """The input of a layer for so many tokens, [1, T, hidden]."""
    return mx.random.normal((1, number, HIDDEN), key=mx.random.key(seed))


def run_layer(model, storage, requests, *inputs, layer=1):
    """The output of a layer for each request: its rows [1, T, hidden]."""
    block, x = model.layers_inner[layer], mx.concatenate(inputs, axis=1)
    out = packed._run_block(block, x, Batch(requests, storage), storage, layer)
    assert out.shape == x.shape
    ends = [sum(each.shape[1] for each in inputs[:number]) for number in range(1, len(inputs))]
    return mx.split(out, ends, axis=1)


def alone(model, x, layer=1):
    """The output of the layer for a request that has a cache for itself."""
    return model.layers_inner[layer](x, 0, model.create_kv_cache()[layer], "causal")


def row_of(request):
    """A request of these tokens, as far as a layer sees it."""
    pages, start, stop = request
    return PackedRequest([0] * (stop - start), stop, pages)


def test_task_2_a_whole_prompt_in_pages_out_of_order(model):
    x = vectors(37, seed=1)
    (out,) = run_layer(model, empty_pages(), [row_of(([6, 0, 3], 0, 37))], x)
    assert_logits(out, alone(model, x))


def test_task_2_rows_of_other_requests_change_nothing(model):
    one, two = vectors(20, seed=1), vectors(5, seed=2)
    requests = [row_of(([6, 0], 0, 20)), row_of(([3], 0, 5))]
    outs = run_layer(model, empty_pages(), requests, one, two)
    assert_logits(outs[0], alone(model, one))
    assert_logits(outs[1], alone(model, two))


def test_task_2_a_decoded_token_sees_those_before_it_and_itself(model):
    x, storage = vectors(18, seed=1), empty_pages()
    run_layer(model, storage, [row_of(([6, 0], 0, 17))], x[:, :17])
    (out,) = run_layer(model, storage, [row_of(([6, 0], 17, 18))], x[:, 17:])
    assert_logits(out, alone(model, x)[:, 17:])


def test_task_2_chunks_and_decoded_tokens_share_a_step(model):
    prompt, answer, storage = vectors(33, seed=1), vectors(9, seed=2), empty_pages()
    run_layer(
        model, storage, [row_of(([7, 2, 5], 0, 14)), row_of(([4], 0, 8))], prompt[:, :14], answer[:, :8]
    )
    requests = [row_of(([4], 8, 9)), row_of(([7, 2, 5], 14, 33))]
    decoded, chunk = run_layer(model, storage, requests, answer[:, 8:], prompt[:, 14:])
    assert_logits(decoded, alone(model, answer)[:, 8:])
    assert_logits(chunk, alone(model, prompt)[:, 14:])


def test_task_2_a_layer_writes_the_slots_of_its_rows_and_no_others(model):
    storage = empty_pages(fill=7.0)
    mx.eval(run_layer(model, storage, [row_of(([6, 0], 0, 20)), row_of(([3], 0, 5))], vectors(25, seed=1)))
    mine = sorted(slots_of([6, 0], range(20)) + slots_of([3], range(5)))
    for pages in (storage.keys, storage.values):
        assert written_slots(pages[1], stale=7.0) == mine
        assert written_slots(pages[0], stale=7.0) == []


# Task 3: the model


def tokens(number, seed):
    return mx.random.randint(0, VOCABULARY, (number,), key=mx.random.key(seed)).tolist()


def alone_logits(model, ids):
    """The logits [T, V] of a request that has the model for itself."""
    return model(mx.array([ids]), 0, model.create_kv_cache())[0]


def step(model, storage, *requests):
    return packed_logits(model, Batch(requests, storage), storage)


def test_task_3_a_whole_prompt(model):
    ids = tokens(20, seed=1)
    logits = step(model, empty_pages(), PackedRequest(ids, 20, [6, 0], num_logits=20))
    assert_logits(logits, alone_logits(model, ids))


def test_task_3_logits_are_computed_for_the_rows_that_want_them(model):
    """Two of the first request, none of the second, one of the third, in this order."""
    first, second, third = tokens(20, seed=1), tokens(4, seed=2), tokens(3, seed=3)
    requests = [
        PackedRequest(first, 20, [6, 0], num_logits=2),
        PackedRequest(second, 4, [5], num_logits=0),
        PackedRequest(third, 3, [3]),
    ]
    logits = step(model, empty_pages(), *requests)
    assert logits.shape == (3, VOCABULARY)
    assert_logits(logits[:2], alone_logits(model, first)[-2:])
    assert_logits(logits[2:], alone_logits(model, third)[-1:])


def test_task_3_a_chunk_inside_a_prompt_gives_no_logits_and_is_stored(model):
    """Keys and values are there for the next step once the result is evaluated."""
    ids, storage = tokens(30, seed=1), empty_pages()
    nothing = step(model, storage, PackedRequest(ids[:20], 20, [6, 0], num_logits=0))
    assert nothing.shape == (0, HIDDEN)
    mx.eval(nothing)
    assert_logits(step(model, storage, PackedRequest(ids[20:], 30, [6, 0])), alone_logits(model, ids)[-1:])


def test_task_3_a_step_that_wants_no_logits_scores_no_row(model, monkeypatch):
    """The product with the vocabulary is the largest of all. Other steps score the rows with logits alone."""
    scored = []
    score = type(model).score
    monkeypatch.setattr(type(model), "score", lambda self, x: scored.append(x.shape[0]) or score(self, x))
    storage = empty_pages()
    step(model, storage, PackedRequest(tokens(9, seed=1), 9, [5], num_logits=0))
    assert scored == []
    step(model, storage, A, C)
    assert scored == [1 + 3]


def test_task_3_decodes_chunks_and_drafts_share_a_step(model):
    """As in the chapter's table; each request gets what it gets alone."""
    storage = empty_pages()
    a, b, c = tokens(42, seed=1), tokens(21, seed=2), tokens(12, seed=3)
    before = [
        PackedRequest(a[:41], 41, A.pages, num_logits=0),
        PackedRequest(b[:16], 16, B.pages, num_logits=0),
        PackedRequest(c[:9], 9, C.pages),
    ]
    mx.eval(step(model, storage, *before), storage.keys, storage.values)
    after = [
        PackedRequest(a[41:], 42, A.pages),
        PackedRequest(b[16:], 21, B.pages),
        PackedRequest(c[9:], 12, C.pages, num_logits=3),
    ]
    logits = step(model, storage, *after)
    assert logits.shape == (5, VOCABULARY)
    assert_logits(logits[:1], alone_logits(model, a)[-1:])
    assert_logits(logits[1:2], alone_logits(model, b)[-1:])
    assert_logits(logits[2:], alone_logits(model, c)[-3:])
