"""Week 3, day 2: attention over pages. Task 2 is paged_attention, for one request and for a batch."""

import mlx.core as mx
import numpy as np
import pytest

from .support.attention.pages import attention_by_sequence, paged
from .support.cases import normal, qkv
from .support.generation.byte_text import AsciiTokenizer, ByteTokenizer, as_text
from .support.generation.fake_models import PagedFake, answers_one_by_one
from .support.generation.rules import failing_after, greedy, random_rule, scripted
from .support.models import decoder
from .support.models.checkpoints import checkpoint, tokens
from .support.models.logits import assert_logits
from .support.page_pool import assert_consistent
from .tiny_llm_base import (
    BatchingKvCache,
    PagedKvMetadata,
    Qwen2ModelWeek2,
    Qwen2ModelWeek3,
    TinyKvFullCache,
    TinyKvPagedCache,
    TinyKvPagedPool,
    batch_generate,
    flash_attention,
    paged_attention,
)
from .utils import assert_allclose

PAGE_SIZES = pytest.mark.parametrize("page_size", [1, 7, 128])
MASKS = pytest.mark.parametrize("mask", [None, "causal"])


def check_paged(inputs, context_lens, page_size, mask=None, scale=None):
    """paged_attention equals the oracle on the tokens of each sequence; free slots hold NaN. Returns it."""
    query, key, value = inputs
    with mx.stream(mx.cpu):
        result = paged_attention(query, *paged(key, value, context_lens, page_size), scale, mask)
        expected = attention_by_sequence(query, key, value, context_lens, scale, mask == "causal")
        assert_allclose(result, expected, mx.float32)
        assert result.dtype == mx.float32
    return result


# Task 1: what a batch of paged caches tells the kernel


def paged_cache(pool, length, seed=0):
    key = normal(1, 2, length, 8, seed=seed)
    cache = TinyKvPagedCache(pool)
    cache.update_and_fetch(key, -key)
    return cache


def test_task_1_metadata_of_one_request():
    """The pages in order, then -1; the number of tokens; the pages of the pool as they are."""
    pool = TinyKvPagedPool(page_size=4)
    paged_cache(pool, 5).release()  # two pages that are free, so that ids do not come in order
    cache = paged_cache(pool, 3)
    other = paged_cache(pool, 1)
    token = normal(1, 2, 6, 8, seed=5)
    metadata = cache.update_and_fetch_paged(token, -token, mask="causal")
    assert isinstance(metadata, PagedKvMetadata)
    assert (metadata.page_size, metadata.mask) == (4, "causal")
    assert metadata.block_table.tolist() == [cache.page_ids]
    assert metadata.context_lens.tolist() == [9]
    assert metadata.block_table.dtype == metadata.context_lens.dtype == mx.int32
    assert metadata.key_pages.shape == (pool.num_pages, 2, 4, 8)
    assert mx.array_equal(metadata.key_pages, pool.key_pages)
    assert mx.array_equal(metadata.value_pages, -metadata.key_pages)
    assert not set(cache.page_ids) & set(other.page_ids)
    padded = cache.paged_metadata(max_pages=5)
    assert padded.block_table.tolist() == [[*cache.page_ids, -1, -1]]
    assert padded.mask is None
    assert cache.context_lens().tolist() == [9]


def test_task_1_metadata_of_a_batch():
    """One row for each slot; an idle one has no page and no token."""
    pool = TinyKvPagedPool(page_size=4)
    batch = BatchingKvCache(3, 100)
    long, short = paged_cache(pool, 11, seed=1), paged_cache(pool, 3, seed=2)
    batch.add_request(long, 2)
    batch.add_request(short, 0)
    new = normal(3, 2, 1, 8, seed=5)
    metadata = batch.update_and_fetch_paged(new, -new, mask_length=1, mask="causal")
    assert metadata.mask == "causal"
    assert metadata.context_lens.tolist() == [4, 0, 12]
    assert metadata.block_table.tolist() == [[*short.page_ids, -1, -1], [-1, -1, -1], long.page_ids]
    assert metadata.block_table.dtype == metadata.context_lens.dtype == mx.int32
    assert mx.array_equal(short.key_values[0][0, :, -1], new[0, :, -1])
    assert mx.array_equal(long.key_values[0][0, :, -1], new[2, :, -1])


def test_task_1_metadata_needs_one_pool():
    """Pages of two pools have no common numbers, and a dense cache has none."""
    batch = BatchingKvCache(2, 100)
    caches = [paged_cache(TinyKvPagedPool(4), 3) for _ in range(2)]
    for slot, cache in enumerate(caches):
        batch.add_request(cache, slot)
    new = normal(2, 2, 1, 8)
    with pytest.raises(ValueError, match="expected one pool"):
        batch.update_and_fetch_paged(new, new)
    batch.add_request(TinyKvFullCache(), 1)
    with pytest.raises(ValueError, match="without pages"):
        batch.update_and_fetch_paged(new, new)
    with pytest.raises(NotImplementedError, match="mask: got an array"):
        batch.update_and_fetch_paged(new, new, mask=mx.zeros((1, 4)))
    assert [cache.offset for cache in caches] == [3, 0]


# Task 2: paged_attention in src/tiny_llm/ops/paged.py and src/extensions/src/paged_attention.cpp


def attend_to_numbers(table, context_lens, L=1, mask=None):
    """Four pages of two slots, with the numbers 0, 1, .. 7 as values and scores of 0: a mean of numbers."""
    query, keys = mx.zeros((len(table), 1, L, 4)), mx.zeros((4, 1, 2, 4))
    values = mx.broadcast_to(mx.arange(8.0).reshape(4, 1, 2, 1), keys.shape)
    with mx.stream(mx.cpu):
        result = paged_attention(query, keys, values, mx.array(table), mx.array(context_lens), 2, mask=mask)
    return result[:, 0, :, 0].tolist()


def test_task_2_paged_attention_aligns_the_last_query_with_the_last_token():
    """Two queries are the last of four tokens, 2, 3, 4 and 5: they see three of them and all four."""
    assert attend_to_numbers([[1, 2]], [4], L=2, mask="causal") == [[(2 + 3 + 4) / 3, 3.5]]


def test_task_2_paged_attention_follows_the_table():
    """The tokens of the first row are 6, 7, 2, 3, those of the second 4, 5, 0, 1; the last is hidden once."""
    expected = [[(6 + 7 + 2) / 3, 4.5], [(4 + 5 + 0) / 3, 2.5]]
    assert attend_to_numbers([[3, 1], [2, 0]], [4, 4], L=2, mask="causal") == expected


def test_task_2_paged_attention_ends_with_the_context():
    """Slots after the last token hold old values and are ignored; a row without tokens gives 0."""
    assert attend_to_numbers([[3, 1], [3, 1], [-1, -1]], [1, 2, 0]) == [[6.0], [6.5], [0.0]]


@PAGE_SIZES
def test_task_2_paged_attention_equals_attention_on_gathered_tokens(page_size):
    query, key, value = qkv(batch=(2,), L=33, S=131, E=64)
    with mx.stream(mx.cpu):
        expected = flash_attention(query, key, value, 0.2, "causal")
        result = paged_attention(query, *paged(key, value, [131, 131], page_size), 0.2, "causal")
        assert_allclose(result, np.array(expected), mx.float32)


@PAGE_SIZES
@MASKS
@pytest.mark.parametrize(("L", "S"), [(33, 65), (70, 131), (257, 300), (65, 65), (65, 33), (1, 257)])
def test_task_2_paged_attention_single(L, S, page_size, mask):
    """One request: a prompt, a chunk of one, or the next token."""
    check_paged(qkv(batch=(1,), heads=6, kv_heads=2, L=L, S=S, E=64), [S], page_size, mask)


@pytest.mark.parametrize("E", [80, 128])
def test_task_2_paged_attention_of_other_head_sizes(E):
    check_paged(qkv(batch=(1,), heads=6, kv_heads=2, L=70, S=131, E=E), [131], 7, "causal")


@PAGE_SIZES
@MASKS
@pytest.mark.parametrize("L", [1, 33])
def test_task_2_paged_attention_batch(L, page_size, mask):
    """Requests of different lengths, one of them an idle slot."""
    result = check_paged(qkv(batch=(4,), L=L, S=300, E=64), [300, 0, 40, 129], page_size, mask)
    assert not mx.any(result[1])


@MASKS
def test_task_2_paged_attention_treats_ids_of_no_page_as_absent(mask):
    """Whether -1 or beyond the last page: what would stand there is not read and not seen."""
    query, key, value = qkv(batch=(1,), L=9, S=131, E=64)
    pages = paged(key, value, [131], 64)
    keys = slice(0, 64)
    with mx.stream(mx.cpu):
        for absent in (-1, len(pages.key_pages)):
            pages.block_table[0, 1:] = absent
            result = paged_attention(query, *pages, mask=mask)
            expected = attention_by_sequence(query, key[:, :, keys], value[:, :, keys], [64])
            assert_allclose(result, expected, mx.float32)


def test_task_2_paged_attention_refuses_masks_and_another_page_size():
    query, key, value = qkv(batch=(1,), L=9, S=131)
    pages = paged(key, value, [131], 64)
    for mask in ("casual", mx.zeros((9, 131))):
        with pytest.raises(NotImplementedError, match=r"^paged_attention: mask"):
            paged_attention(query, *pages, mask=mask)
    with pytest.raises(ValueError, match=r"^paged_attention: key_pages: got"):
        paged_attention(query, *pages._replace(page_size=32))


# Task 3: the model that reads pages


@pytest.mark.parametrize("page_size", [1, 7, 128])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=["f32", "f16"])
def test_task_3_model_on_pages_equals_the_one_on_dense_caches(page_size, dtype):
    """A prompt, a chunk and a token, with the pages of another request in between."""
    weights, inputs = checkpoint(), tokens(1, 70)
    with mx.stream(mx.cpu):
        dense = Qwen2ModelWeek2(weights, dtype=dtype)
        model = Qwen2ModelWeek3(weights, page_size, dtype=dtype)
        caches = dense.create_kv_cache(), model.create_kv_cache()
        other = model.create_kv_cache()
        for start, stop in [(0, 33), (33, 69), (69, 70)]:
            want, got = (
                each(inputs[:, start:stop], start, cache)
                for each, cache in zip((dense, model), caches, strict=True)
            )
            model(tokens(1, 3, seed=start), other[0].offset, other)
            assert got.dtype == dtype
            assert_logits(got, want, tolerance=1e-5 if dtype == mx.float32 else 2e-2)


def test_task_3_model_decodes_a_batch_on_pages():
    """Requests of different lengths beside an idle slot, each as if alone; then all pages are free."""
    weights = checkpoint()
    lengths = {0: 33, 2: 5}
    texts = {slot: tokens(1, length + 4, seed=slot) for slot, length in lengths.items()}
    with mx.stream(mx.cpu):
        model = Qwen2ModelWeek3(weights, page_size=7, dtype=mx.float32)
        batch = [BatchingKvCache(3, 100) for _ in range(3)]
        for slot, length in lengths.items():
            cache = model.create_kv_cache()
            model(texts[slot][:, :length], 0, cache)
            for layer, prefilled in zip(batch, cache, strict=True):
                layer.add_request(prefilled, slot)
        for step in range(4):
            offsets = [lengths.get(slot, -step) + step for slot in range(3)]
            inputs = [[texts[slot][0, at].item() if slot in texts else 0] for slot, at in enumerate(offsets)]
            logits = model(mx.array(inputs), offsets, batch)
            for slot, text in texts.items():
                at = offsets[slot]
                assert_logits(logits[slot : slot + 1], decoder.logits(text, weights)[:, at : at + 1])
        for layer in batch:
            layer.release()
    assert model.page_pool.num_free_pages == model.page_pool.num_pages > 0
    assert_consistent(model.page_pool)


@pytest.mark.parametrize("page_size", [1, 4, 128])
@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_task_4_batch_generate_on_pages_answers_each_prompt_as_if_alone(page_size, batch_size):
    """Pages change hands between requests; in the end all are free."""
    rule = random_rule(1)
    model = PagedFake(rule, page_size=page_size)
    prompts = ["Hello", "a", "The quick brown fox jumps", "x" * 40, "Zebra!", "Hello"]
    results = batch_generate(model, ByteTokenizer(), prompts, 512, batch_size, prefill_step=7)
    assert results == [(index, as_text(greedy(rule, prompt))) for index, prompt in enumerate(prompts)]
    assert_consistent(model.page_pool)
    assert model.page_pool.num_free_pages == model.page_pool.num_pages > 0


def test_task_4_a_request_that_leaves_makes_room_for_the_next():
    """One after the other, ten requests need the pages of one."""
    prompts = [chr(ord("a") + index) * 4 for index in range(10)]
    model = PagedFake(scripted({prompt: list(b"1234") for prompt in prompts}), page_size=4)
    assert batch_generate(model, ByteTokenizer(), prompts[:1], batch_size=1) == [(0, "1234")]
    enough = model.page_pool.num_pages
    assert batch_generate(model, ByteTokenizer(), prompts, batch_size=1) == [(i, "1234") for i in range(10)]
    assert model.page_pool.num_pages <= 2 * enough  # the next prompt is read while the last answer ends


@pytest.mark.parametrize("length", [1, 2, 6, 7, 9])
def test_task_4_batch_generate_frees_all_pages_when_the_model_fails(length):
    """In the middle of a prompt or of an answer."""
    rule = failing_after(scripted({"aaaaaa": list(b"123456"), "b": [], "cc": list(b"123")}), length)
    model = PagedFake(rule, page_size=2)
    with pytest.raises(ZeroDivisionError):
        batch_generate(model, ByteTokenizer(), ["b", "aaaaaa", "cc"], batch_size=2, prefill_step=4)
    assert_consistent(model.page_pool)
    assert model.page_pool.num_free_pages == model.page_pool.num_pages > 0


def test_task_4_model_batches_on_pages_as_it_answers_alone():
    """The whole model: batched on pages, and alone on dense caches, gives the same text."""
    weights = checkpoint()
    prompts = ["Hello", "a", "The quick brown fox jumps over the lazy dog", "Zebra!"]
    with mx.stream(mx.cpu):
        dense = Qwen2ModelWeek2(weights, dtype=mx.float32)
        paged = Qwen2ModelWeek3(weights, page_size=7, dtype=mx.float32)
        alone = answers_one_by_one(dense, AsciiTokenizer(), prompts, 60)
        assert batch_generate(paged, AsciiTokenizer(), prompts, 60, 2, prefill_step=16) == alone
    assert paged.page_pool.num_free_pages == paged.page_pool.num_pages > 0
