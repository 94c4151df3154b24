"""Steps of packed requests over pages give each request the logits that it gets alone."""

import copy
import io
import sys
from contextlib import nullcontext

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError
from tiny_llm.cache.storage import PagedStorage
from tiny_llm.models import dispatch_model, packed
from tiny_llm.models.packed import Batch, PackedBlocks, PackedRequest, packed_logits
from tiny_llm.runtime.extension import load_extension

from ..support.gpu import on_a_gpu
from ..support.models.checkpoints import VOCABULARY, checkpoint, each_family
from ..support.models.logits import TOLERANCE, assert_logits
from ..support.refusal import refused

LAYERS, PAGE = 2, 8
LONG = [9, 4, 0, 12, 7, 1, 8, 10]
PROMPTS = {
    "short": (1, [3]),
    "just a page": (8, [5]),
    "over": (9, [2, 11]),
    "long": (61, LONG),
}
each_dtype = pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)


def model_of(family="qwen2", dtype=mx.float32, **options):
    weights = checkpoint(family, layers=LAYERS, scale_dtype=dtype, **options)
    return dispatch_model("a folder", weights, 2, dtype=dtype, enable_flash_attn=True)


def storage_of(model, num_pages=13, fill=0.0):
    attention = model.layers_inner[0].self_attn
    storage = PagedStorage(
        LAYERS, num_pages, attention.num_kv_heads, PAGE, attention.head_dim, model.precision
    )
    for layer in range(LAYERS):
        storage.keys[layer] = mx.full(storage.keys[layer].shape, fill, model.precision)
        storage.values[layer] = mx.full(storage.values[layer].shape, fill, model.precision)
    mx.eval(storage.keys, storage.values)
    return storage


def token_ids(count, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def alone(model, ids):
    """The logits [T, V] of a request that has the model for itself."""
    return model(mx.array([ids]), 0, model.create_kv_cache())[0]


def requests(num_logits=1):
    return [
        PackedRequest(token_ids(count, seed), count, pages, min(num_logits, count))
        for seed, (count, pages) in enumerate(PROMPTS.values())
    ]


@pytest.fixture
def layer_by_layer(monkeypatch):
    """Blocks run operation by operation, as where there is no native one."""
    monkeypatch.setattr(packed, "fused_operation", lambda *arguments: None)


@each_family
@each_dtype
def test_prompts_of_all_lengths_in_one_step(family, dtype):
    model = model_of(family, dtype)
    storage = storage_of(model)
    actual = packed_logits(model, Batch(requests(num_logits=99), storage), storage)
    expected = mx.concatenate([alone(model, request.token_ids) for request in requests()])
    assert_logits(actual, expected, TOLERANCE[dtype])


def test_blocks_found_once_serve_contexts_of_every_length():
    model = model_of(dtype=mx.bfloat16)
    storage, blocks = storage_of(model, num_pages=60), packed.PackedBlocks(model)
    pages = list(range(60))
    for stop in (5, 200, 300, 450):  # the table of rotations grows from 256 positions to 512
        ids = token_ids(stop)
        given = [PackedRequest(ids, stop, pages)]
        actual = packed_logits(model, Batch(given, storage), storage, blocks)
        assert_logits(actual, alone(model, ids)[-1:], TOLERANCE[mx.bfloat16])
    x = model.embedding(mx.array([1]))[None]
    first = blocks.operations(x, Batch([PackedRequest([1], 9, pages)], storage))
    assert blocks.operations(x, Batch([PackedRequest([2], 10, pages)], storage)) is first


def test_only_the_wanted_logits_are_computed():
    model = model_of()
    storage = storage_of(model)
    batch = Batch([*requests(num_logits=2)[:3], PackedRequest([1, 2], 2, [6], num_logits=0)], storage)
    actual = packed_logits(model, batch, storage)
    expected = mx.concatenate([alone(model, request.token_ids)[-2:] for request in requests()[:3]])
    assert actual.shape == expected.shape == (5, VOCABULARY)
    assert_logits(actual, expected)


@each_family
def test_chunks_decodes_and_drafts_share_a_step(family):
    model = model_of(family)
    storage = storage_of(model)
    ids = {name: token_ids(count + 4, seed) for seed, (name, (count, _)) in enumerate(PROMPTS.items())}
    pages = {"short": [3], "just a page": [5, 6], "over": [2, 11], "long": LONG}
    done = dict.fromkeys(ids, 0)

    def step(**counts):
        batch = []
        for name, count in counts.items():
            begin, done[name] = done[name], done[name] + count
            batch.append(PackedRequest(ids[name][begin : done[name]], done[name], pages[name], count))
        actual = packed_logits(model, Batch(batch, storage), storage)
        expected = [alone(model, ids[name][: done[name]])[-count:] for name, count in counts.items()]
        assert_logits(actual, mx.concatenate(expected))

    step(short=1, long=30)
    step(short=1, long=31, over=9)
    step(**{"long": 1, "over": 3, "just a page": 8, "short": 1})
    step(**{"just a page": 4, "over": 1, "long": 1})


@each_dtype
@pytest.mark.usefixtures("on_the_cpu")
def test_the_native_block_equals_its_layers_bit_by_bit(dtype, monkeypatch):
    model = model_of("qwen3", dtype)
    native, layers = storage_of(model), storage_of(model)
    actual = packed_logits(model, Batch(requests(num_logits=99), native), native)
    monkeypatch.setattr(packed, "fused_operation", lambda *arguments: None)
    expected = packed_logits(model, Batch(requests(num_logits=99), layers), layers)
    assert mx.array_equal(actual, expected).item()
    assert all(map(mx.array_equal, native.keys + native.values, layers.keys + layers.values))


@pytest.mark.parametrize("bits", [None, 8], ids=["dense weights", "8 bits"])
def test_weights_of_other_forms(bits):
    model = model_of(bits=bits)
    storage = storage_of(model)
    actual = packed_logits(model, Batch(requests(), storage), storage)
    assert_logits(actual, mx.concatenate([alone(model, each.token_ids)[-1:] for each in requests()]))


@pytest.mark.parametrize("form", ["native", "layer_by_layer"])
def test_free_slots_influence_nothing(form, request):
    if form != "native":
        request.getfixturevalue(form)
    model = model_of()
    clean, stale = storage_of(model), storage_of(model, fill=float("nan"))
    expected = packed_logits(model, Batch(requests(), clean), clean)
    actual = packed_logits(model, Batch(requests(), stale), stale)
    assert mx.array_equal(actual, expected).item()


def test_a_step_writes_the_slots_of_its_rows_and_no_others():
    model = model_of()
    storage = storage_of(model, fill=7.0)
    mx.eval(packed_logits(model, Batch(requests(), storage), storage))
    written = {
        (page, slot)
        for count, pages in PROMPTS.values()
        for page, slot in ((pages[token // PAGE], token % PAGE) for token in range(count))
    }
    for stored in storage.keys + storage.values:
        changed = mx.any(stored != 7.0, axis=(1, 3)).tolist()
        assert {(page, slot) for page in range(13) for slot in range(PAGE) if changed[page][slot]} == written


@pytest.mark.usefixtures("on_the_cpu")
def test_pages_are_written_in_place():
    model = model_of()
    storage = storage_of(model)
    keys = storage.keys[0]
    mx.eval(packed_logits(model, Batch(requests(), storage), storage))
    assert mx.array_equal(keys, storage.keys[0]).item()  # one memory


def test_copied_pages_hold_the_same_tokens():
    model = model_of()
    storage = storage_of(model)
    ids = token_ids(20)
    mx.eval(packed_logits(model, Batch([PackedRequest(ids[:12], 12, [4, 1])], storage), storage))
    storage.copy_pages([(4, 7), (1, 2)])
    for pages in ([4, 1, 0], [7, 2, 3]):
        actual = packed_logits(model, Batch([PackedRequest(ids[12:], 20, pages)], storage), storage)
        assert_logits(actual, alone(model, ids)[-1:])


@pytest.mark.parametrize(
    ("counts", "contexts", "tables", "message"),
    [
        ([0], [3], [[1]], "new_tokens: got 0 for sequence 0, expected at least 1"),
        ([4], [3], [[1]], "context_lens: got 3 for sequence 0, expected at least the 4 new tokens"),
        ([1], [9], [[1]], "block_tables: got 1 for sequence 0, expected the 2 pages of 9 tokens"),
        ([1], [1], [[13]], "block_tables: got 13 for sequence 0, expected 0 to 12"),
        ([1], [1], [[-1]], "block_tables: got -1 for sequence 0, expected 0 to 12"),
        ([1, 1], [1, 1], [[2], [2]], "block_tables: got page 2 for two new tokens"),
        ([1, 1], [1], [[2], [3]], "context_lens: got 1, expected 2 as new_tokens"),
        ([1], [1], [], "block_tables: got 0, expected 1 as new_tokens"),
    ],
)
def test_wrong_steps_are_refused_before_anything_runs(counts, contexts, tables, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        load_extension().PackedStep(counts, contexts, tables, page_size=PAGE, num_pages=13)


@pytest.mark.usefixtures("on_the_cpu")
def test_a_pending_step_does_not_refer_to_its_python_object():
    """MLX's thread may drop a step last, and would wait for the GIL to release such a reference."""
    model = model_of()
    storage = storage_of(model)
    batch = Batch([PackedRequest(token_ids(3), 3, [0])], storage)
    blocks = PackedBlocks(model)
    assert blocks.operations(model.embedding(batch.token_ids)[None], batch)
    before = sys.getrefcount(batch.step)
    logits = packed_logits(model, batch, storage, blocks)
    pending = sys.getrefcount(batch.step)
    mx.eval(logits)
    assert pending == before


@pytest.mark.usefixtures("on_the_cpu")
def test_the_blocks_of_a_step_are_one_operation():
    """From one operation to the next MLX takes longer than a region of the thread pool."""
    model = model_of(dtype=mx.bfloat16)
    storage = storage_of(model)
    text = io.StringIO()
    mx.export_to_dot(text, packed_logits(model, Batch(requests(), storage), storage))
    assert len(model.layers_inner) > 1
    assert text.getvalue().count("PackedDecoderBlocks") == 1


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("argument", ["blocks", "key_pages", "value_pages"])
def test_no_blocks_and_blocks_without_pages_are_refused(argument):
    model = model_of(dtype=mx.bfloat16)
    storage = storage_of(model)
    batch, x = Batch(requests(), storage), mx.zeros((1, 1, model.hidden_size), mx.bfloat16)
    blocks = PackedBlocks(model).operations(x, batch)
    given = {"blocks": blocks, "key_pages": storage.keys, "value_pages": storage.values}
    with refused(argument, function="PackedDecoderBlocks"):
        load_extension().DecoderBlock.packed(x=x, **(given | {argument: []}), step=batch.step)


def test_positions_beyond_those_of_the_model_are_refused():
    model = model_of(max_position_embeddings=16)
    storage = storage_of(model)
    batch = Batch([PackedRequest(token_ids(17), 17, [0, 1, 2])], storage)
    with pytest.raises(ValueError, match="positions"):
        packed_logits(model, batch, storage)


def late_pages(shape, problem):
    """Keys and values that are not evaluated yet and cannot be written in place."""
    pages, heads, size, width = shape
    if problem == "key_pages: got a view with gaps":
        return mx.zeros((pages, size, heads, width)).swapaxes(1, 2), mx.zeros(shape)
    both = mx.zeros(shape)
    return both, copy.copy(both)


each_problem = pytest.mark.parametrize(
    "problem", ["key_pages: got a view with gaps", "value_pages: got the memory of key_pages"]
)


@each_problem
@pytest.mark.usefixtures("on_the_cpu")
def test_pages_that_cannot_be_written_are_refused_at_evaluation(problem):
    model = model_of()
    storage = storage_of(model)
    storage.keys[0], storage.values[0] = late_pages(storage.keys[0].shape, problem)
    with pytest.raises(RuntimeError, match=problem):
        mx.eval(packed_logits(model, Batch(requests(), storage), storage))


@each_problem
def test_where_nothing_is_written_in_place_such_pages_are_right(problem):
    """On a GPU MLX writes, to a copy if it has to."""
    model = model_of()
    storage = storage_of(model)
    storage.keys[0], storage.values[0] = late_pages(storage.keys[0].shape, problem)
    with on_a_gpu():
        actual = packed_logits(model, Batch(requests(), storage), storage)
        assert_logits(actual, mx.concatenate([alone(model, each.token_ids)[-1:] for each in requests()]))


@pytest.mark.parametrize("device", [nullcontext, on_a_gpu])
def test_one_array_for_keys_and_values_is_refused_on_any_device(device):
    storage = storage_of(model_of())
    storage.values[1] = storage.keys[1]
    with device(), pytest.raises(ArgumentError, match=r"^PagedStorage: values\[1\]: got keys\[1\], expected"):
        Batch(requests(), storage)
