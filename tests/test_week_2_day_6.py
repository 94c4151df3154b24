"""Week 2, days 6 and 7: many requests at once, and long prompts in chunks."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from .support.cases import normal, qkv, random_mask
from .support.generation.byte_text import (
    END,
    AsciiTokenizer,
    ByteDetokenizer,
    ByteTokenizer,
    LookAheadDetokenizer,
    as_text,
)
from .support.generation.fake_models import CachedFake, answers_one_by_one
from .support.generation.rules import failing_after, greedy, random_rule, scripted
from .support.models import decoder
from .support.models.checkpoints import checkpoint, tokens
from .support.models.logits import assert_logits
from .support.refusal import refused
from .support.tolerance import to_float64
from .tiny_llm_base import (
    BatchingKvCache,
    Qwen2ModelWeek2,
    Request,
    RoPE,
    TinyKvFullCache,
    batch_generate,
    causal_mask,
    flash_attention,
    scaled_dot_product_attention_grouped,
)
from .utils import assert_rounded_once, attention_in_float64, in_each_precision, on_each_device


@on_each_device
@in_each_precision
def test_task_1_rope_with_an_offset_for_each_row(stream, precision):
    """Rows of a batch have different positions in their sequences."""
    x = normal(4, 33, 2, 32, dtype=precision)
    starts = [0, 300, 7, 7]
    with mx.stream(stream):
        rope = RoPE(32, 400, 10000)
        rotated = rope(x, [slice(start, start + 33) for start in starts])
        expected = [decoder.rotate(to_float64(x[b : b + 1]), start, 10000) for b, start in enumerate(starts)]
        assert_rounded_once(rotated, np.concatenate(expected), precision)


@on_each_device
@in_each_precision
@pytest.mark.parametrize("attend", [scaled_dot_product_attention_grouped, flash_attention])
@pytest.mark.parametrize(("L", "S"), [(33, 65), (70, 131), (1, 257)])
def test_task_1_attention_of_a_chunk_to_earlier_tokens(stream, precision, attend, L, S):
    """The last of L queries stands at the last of S keys; the mask by name and the mask as an array agree."""
    inputs = qkv(L=L, S=S, dtype=precision)
    with mx.stream(stream):
        expected = attention_in_float64(*inputs, mask="causal")
        assert_rounded_once(attend(*inputs, mask="causal"), expected, precision)
        assert_rounded_once(attend(*inputs, mask=causal_mask(L, S, precision)), expected, precision)


@on_each_device
@pytest.mark.parametrize("attend", [scaled_dot_product_attention_grouped, flash_attention])
def test_task_1_attention_of_rows_that_are_padded_on_the_left(stream, attend):
    """Each row hides its own padding, one of them everything; a row without keys gives zeros."""
    inputs = qkv(batch=(4,), L=33, S=131)
    starts = mx.array([0, 40, 97, 131])[:, None, None, None]
    seen = (mx.arange(131) >= starts) & (causal_mask(33, 131, mx.float32) == 0)
    with mx.stream(stream):
        for mask in (seen, mx.where(seen, 0.0, -mx.inf), seen & random_mask(33, 131)):
            result = attend(*inputs, mask=mask)
            assert_rounded_once(result, attention_in_float64(*inputs, mask=mask), mx.float32)
            assert not result[3].any()


def full_cache(length, seed, heads=2, size=8):
    """A cache that holds random tokens, and its keys."""
    key = normal(1, heads, length, size, seed=seed)
    cache = TinyKvFullCache()
    cache.update_and_fetch(key, -key)
    return cache, key


@in_each_precision
@pytest.mark.parametrize("length", [1, 33])
def test_task_2_batching_cache_aligns_its_rows_at_the_right(precision, length):
    """Zeros stand in front of shorter rows, and the mask hides them."""
    batch = BatchingKvCache(max_active_requests=3, max_seq_len=200)
    before = {0: 40, 2: 7}
    known = {}
    for slot, tokens_before in before.items():
        key = normal(1, 2, tokens_before, 8, dtype=precision, seed=slot)
        cache = TinyKvFullCache()
        cache.update_and_fetch(key, -key)
        batch.add_request(cache, slot)
        known[slot] = key
    assert batch.HD == (2, 8)
    new = normal(3, 2, length, 8, dtype=precision, seed=9)
    keys, values, offset, mask = batch.update_and_fetch(new, -new, mask_length=length, mask="causal")
    longest = 40 + length
    assert offset is None
    assert keys.shape == values.shape == (3, 2, longest, 8)
    assert mask.shape == (3, 1, length, longest)
    assert keys.dtype == values.dtype == mask.dtype == precision
    assert mx.array_equal(values, -keys)
    for slot in range(3):
        total = before[slot] + length if slot in before else 0
        assert not keys[slot, :, : longest - total].any()
        assert (mask[slot, :, :, : longest - total] == -mx.inf).all()
        if total:
            row = mx.concatenate([known[slot][0], new[slot]], axis=1)
            assert mx.array_equal(keys[slot, :, longest - total :], row)
            assert mx.array_equal(mask[slot, 0, :, longest - total :], causal_mask(length, total, precision))


def test_task_2_batching_cache_mask_defaults_to_causal():
    """mask_length defaults to the number of new tokens."""
    batch = BatchingKvCache(1, 200)
    batch.add_request(full_cache(5, seed=0)[0], 0)
    token = normal(1, 2, 3, 8)
    *_, mask = batch.update_and_fetch(token, token)
    assert mx.array_equal(mask[0, 0], causal_mask(3, 8, mx.float32))
    *_, mask = batch.update_and_fetch(token, token, mask_length=5)
    assert mx.array_equal(mask[0, 0], causal_mask(5, 11, mx.float32))
    with pytest.raises(NotImplementedError, match="mask: got an array"):
        batch.update_and_fetch(token, token, mask=mask)
    with pytest.raises(ValueError, match="mask: got 'casual'"):
        batch.update_and_fetch(token, token, mask="casual")
    assert batch.kv_caches[0].offset == 11


def test_task_2_batching_cache_adds_and_removes_requests():
    """A removed request releases its cache; so does one that is replaced."""
    released = []

    class Watched(TinyKvFullCache):
        def release(self):
            released.append(self)

    batch = BatchingKvCache(2, 200)
    first, second = Watched(), Watched()
    batch.add_request(first, 1)
    batch.add_request(second, 1)
    assert released == [first]
    batch.remove_request(1)
    assert released == [first, second]
    assert batch.kv_caches == [None, None]


def test_task_2_batching_cache_refuses_invalid_arguments():
    """Slots that do not exist or are idle, other heads, other numbers of rows, a batch without a request."""
    batch = BatchingKvCache(2, 200)
    cache, _ = full_cache(5, seed=0)
    for slot in (-1, 2):
        with pytest.raises(ValueError, match=f"id: got {slot}"):
            batch.add_request(cache, slot)
        with pytest.raises(ValueError, match=f"id: got {slot}"):
            batch.remove_request(slot)
    with pytest.raises(ValueError, match="id: got 1"):
        batch.remove_request(1)
    token = normal(2, 2, 1, 8)
    with pytest.raises(ValueError, match="no active request"):
        batch.update_and_fetch(token, token)
    with pytest.raises(ValueError, match="no active request"):
        batch.update_and_fetch_paged(token, token)
    batch.add_request(cache, 0)
    with pytest.raises(ValueError, match=r"got \(4, 8\).*expected \(2, 8\)"):
        batch.add_request(full_cache(5, seed=1, heads=4)[0], 1)
    with pytest.raises(ValueError, match="got 1 rows, expected 2"):
        batch.update_and_fetch(token[:1], token[:1])
    with pytest.raises(ValueError, match="without pages"):
        batch.update_and_fetch_paged(token, token)
    with pytest.raises(NotImplementedError, match="rewound"):
        batch.rewind(1)
    assert cache.offset == 5


@on_each_device
@pytest.mark.parametrize("flash", [False, True], ids=["grouped", "flash"])
def test_task_3_model_on_a_batch_of_requests_of_different_lengths(stream, flash):
    """Requests join at any time, and each goes on as if it were alone; one slot stays idle."""
    weights = checkpoint()
    lengths, joins = {0: 33, 1: 5, 3: 70}, {0: 0, 1: 0, 3: 2}
    texts = {slot: tokens(1, length + 6, seed=slot) for slot, length in lengths.items()}
    expected = {slot: decoder.logits(text, weights) for slot, text in texts.items()}
    with mx.stream(stream):
        model = Qwen2ModelWeek2(weights, flash, dtype=mx.float32)
        batch = [BatchingKvCache(4, 100) for _ in range(3)]
        position = {}
        for step in range(5):
            for slot in (slot for slot, when in joins.items() if when == step):
                cache = model.create_kv_cache()
                model(texts[slot][:, : lengths[slot]], 0, cache)
                for layer, prefilled in zip(batch, cache, strict=True):
                    layer.add_request(prefilled, slot)
                position[slot] = lengths[slot]
            offsets = [position.get(slot, 0) for slot in range(4)]
            inputs = [
                [texts[slot][0, at].item() if slot in position else 0] for slot, at in enumerate(offsets)
            ]
            logits = model(mx.array(inputs), offsets, batch)
            for slot, at in position.items():
                assert_logits(logits[slot : slot + 1], expected[slot][:, at : at + 1])
                position[slot] += 1


PROMPTS = ["Hello", "a", "The quick brown fox jumps", "x" * 40, "Zebra!", "Hello", "gruß"]


@pytest.mark.parametrize("batch_size", [1, 3, 20])
@pytest.mark.parametrize("prefill_step", [1, 6, 128])
def test_task_4_batch_generate_answers_each_prompt_as_if_alone(batch_size, prefill_step, capsys):
    """One result for every prompt, in their order, whatever joins and leaves in between; no print."""
    rule = random_rule(1)
    model = CachedFake(rule)
    prompts = list(PROMPTS)
    results = batch_generate(model, ByteTokenizer(), prompts, 512, batch_size, prefill_step)
    assert results == [(index, as_text(greedy(rule, prompt))) for index, prompt in enumerate(PROMPTS)]
    assert prompts == PROMPTS
    assert capsys.readouterr() == ("", "")
    assert max(rows for rows, _ in model.calls) <= batch_size


def test_task_4_batch_generate_decodes_together():
    """A round prefills at most one chunk of one prompt, and adds a token to each active answer."""
    model = CachedFake(scripted({"a": list(b"12345"), "b": list(b"12345"), "c": list(b"12345")}))
    results = batch_generate(model, ByteTokenizer(), ["a", "b", "c"], batch_size=3)
    assert results == [(0, "12345"), (1, "12345"), (2, "12345")]
    assert [call for call in model.calls if call == (1, 1)] == [(1, 1)] * 3
    assert [call for call in model.calls if call == (3, 1)] == [(3, 1)] * 7


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("detokenizer", [ByteDetokenizer, LookAheadDetokenizer])
def test_task_4_batch_generate_mixes_no_text(shared, detokenizer):
    """Characters of several tokens, in answers that grow at the same time, and one that is cut in half."""
    answers = {"a": "Grüße 🦙", "b": "🦙🦙🦙🦙", "c": "ß"}
    model = CachedFake(scripted({p: list(a.encode()) for p, a in answers.items()} | {"d": [0xF0, 0x9F]}))
    tokenizer = ByteTokenizer(detokenizer, shared=shared)
    results = batch_generate(model, tokenizer, ["a", "b", "c", "d"])
    assert results == [*enumerate(answers.values()), (3, "")]


@pytest.mark.parametrize("prefill_step", [1, 128])
def test_task_4_batch_generate_with_an_empty_answer(prefill_step):
    """An end token may come first, in the last prompt too, when nothing else is left to decode."""
    model = CachedFake(scripted({"aaa": [], "bbb": list(b"b"), "ccc": []}))
    results = batch_generate(model, ByteTokenizer(), ["aaa", "bbb", "ccc"], prefill_step=prefill_step)
    assert results == [(0, ""), (1, "b"), (2, "")]
    assert batch_generate(model, ByteTokenizer(), ["ccc"], prefill_step=prefill_step) == [(0, "")]


def test_task_4_batch_generate_stops_at_any_end_token():
    """As `simple_generate` does."""
    tokenizer = ByteTokenizer()
    tokenizer.eos_token_ids = {END, ord("c")}
    model = CachedFake(scripted({"a": list(b"abcd"), "b": list(b"cd")}))
    assert batch_generate(model, tokenizer, ["a", "b"]) == [(0, "ab"), (1, "")]


def test_task_4_batch_generate_of_an_empty_list_is_empty():
    """No call of the model."""
    model = CachedFake(random_rule())
    assert batch_generate(model, ByteTokenizer(), []) == []
    assert model.calls == []


@pytest.mark.parametrize("context", [None, 8])
def test_task_4_batch_generate_ends_a_request_at_max_seq_len(context):
    """With that many tokens in its cache, which excludes the newest. The model's context is a limit, too."""
    answer = list(b"123456789")
    model = CachedFake(scripted({"aaaa": answer, "bb": answer, "c": list(b"1")}), context)
    max_seq_len = 8 if context is None else 512
    results = batch_generate(model, ByteTokenizer(), ["aaaa", "bb", "c"], max_seq_len=max_seq_len)
    assert results == [(0, "12345"), (1, "1234567"), (2, "1")]


@pytest.mark.parametrize(("prompts", "index"), [(["a", "x" * 8], 1), (["x" * 9, "a"], 0)])
def test_task_4_batch_generate_refuses_a_prompt_that_is_too_long(prompts, index):
    """Before any call of the model, for the other prompts, too."""
    model = CachedFake(random_rule())
    with refused(rf"prompts\[{index}\]", function="batch_generate"):
        batch_generate(model, ByteTokenizer(), prompts, max_seq_len=8)
    assert model.calls == []


@pytest.mark.parametrize("argument", ["max_seq_len", "batch_size", "prefill_step"])
def test_task_4_batch_generate_refuses_sizes_below_one(argument):
    """With zero no request would make progress."""
    with refused(argument, function="batch_generate"):
        batch_generate(CachedFake(random_rule()), ByteTokenizer(), ["a"], **{argument: 0})


@pytest.mark.parametrize("length", [1, 2, 6, 7, 9])
def test_task_4_batch_generate_releases_all_caches_when_the_model_fails(length):
    """In the middle of a prompt or of an answer; what was done before is released once, not twice."""
    model = CachedFake(
        failing_after(scripted({"aaaaaa": list(b"123456"), "b": [], "cc": list(b"123")}), length)
    )
    with pytest.raises(ZeroDivisionError):
        batch_generate(model, ByteTokenizer(), ["b", "aaaaaa", "cc"], batch_size=2, prefill_step=4)
    assert model.caches
    assert {cache.released for cache in model.caches} == {1}


@pytest.mark.parametrize(("length", "step"), [(1, 1), (7, 3), (9, 3), (128, 128), (129, 128)])
def test_task_5_a_request_prefills_its_prompt_in_chunks(length, step):
    """Each call prefills the next `step` tokens, at the positions after those in its caches."""
    prompt = ("Hello, world! " * 10)[:length]
    rule = random_rule(3)
    model = CachedFake(rule)
    request = Request(model, ByteTokenizer(), prompt, step, prompt_idx=4)
    assert (request.prompt, request.prompt_idx, request.prefill_max_step) == (prompt, 4, step)
    assert (request.offset, request.eos_token_id, len(request.kv_cache)) == (0, END, 2)
    while not request.is_prefill_done:
        before = request.offset
        request.try_prefill()
        assert request.offset == min(before + step, length)
        assert [cache.offset for cache in request.kv_cache] == [request.offset] * 2
    assert model.calls[:-1] == [(1, step)] * ((length - 1) // step)
    assert request.next_token == greedy(rule, prompt, limit=1)[0]
    assert (request.offset, request.is_done) == (length, False)


def test_task_5_a_request_appends_token_after_token():
    """The first one is not in the caches yet, so it leaves the offset as it is."""
    request = Request(CachedFake(scripted({"abc": list("ß!".encode())})), ByteTokenizer(), "abc")
    request.try_prefill()
    assert (request.next_token, request.offset, request.text()) == (0xC3, 3, "")
    request.decode_done(0x9F)
    assert (request.next_token, request.offset, request.text()) == (0x9F, 4, "ß")
    request.decode_done(END)
    assert (request.next_token, request.offset, request.text()) == (0x9F, 4, "ß")
    assert request.is_done


def test_task_5_a_finished_request_refuses_more_calls():
    """try_prefill after the last chunk and decode_done after the end raise."""
    request = Request(CachedFake(scripted({"abc": []})), ByteTokenizer(), "abc")
    request.try_prefill()
    assert request.is_done
    assert request.text() == ""
    with pytest.raises(ValueError, match="Request: try_prefill"):
        request.try_prefill()
    with pytest.raises(ValueError, match="Request: decode_done"):
        request.decode_done(ord("a"))


def test_task_5_chunks_keep_the_others_decoding():
    """Between two chunks of a long prompt, the active answer grows by one token."""
    model = CachedFake(scripted({"a": list(b"123456789"), "x" * 30: list(b"1")}))
    batch_generate(model, ByteTokenizer(), ["a", "x" * 30], batch_size=2, prefill_step=10)
    widths = [width for _, width in model.calls]
    chunks = [index for index, width in enumerate(widths) if width == 10]
    assert [later - earlier for earlier, later in itertools.pairwise(chunks)] == [2, 2]


@pytest.mark.parametrize("prompt", ["", "x" * 8], ids=["empty", "long"])
def test_task_5_a_request_refuses_a_prompt_without_an_answer(prompt):
    """No tokens, or as many as the model's context holds."""
    with refused("prompt", function="Request"):
        Request(CachedFake(random_rule(), context=8), ByteTokenizer(), prompt)


@pytest.mark.parametrize("flash", [False, True])
def test_task_5_a_model_batches_chunks_as_it_answers_alone(flash):
    """The whole model, with dense caches and array masks."""
    weights = checkpoint()
    prompts = ["Hello", "a", "The quick brown fox jumps over the lazy dog", "Zebra!"]
    with mx.stream(mx.cpu):
        model = Qwen2ModelWeek2(weights, flash, dtype=mx.float32)
        alone = answers_one_by_one(model, AsciiTokenizer(), prompts, 60)
        assert batch_generate(model, AsciiTokenizer(), prompts, 60, 2, prefill_step=16) == alone
