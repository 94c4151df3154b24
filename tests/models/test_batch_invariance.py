"""With `batch_invariant`, the logits of a request have the same bits whatever else its steps compute."""

import hashlib

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.cache.storage import PagedStorage
from tiny_llm.models import dispatch_model, packed
from tiny_llm.models.packed import Batch, PackedRequest, packed_logits
from tiny_llm.runtime.batch_invariance import batch_invariant
from tiny_llm.runtime.extension import load_extension

from ..support.models.checkpoints import VOCABULARY, checkpoint
from ..support.processes.child import run_python

pytestmark = pytest.mark.usefixtures("on_the_cpu")

LAYERS, PAGE, NUM_PAGES = 2, 16, 420
TOKENS = 83
LONG = 300  # more keys than attention leaves in one piece for a few rows
DTYPES = [mx.float32, mx.float16, mx.bfloat16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_bits = pytest.mark.parametrize("bits", [None, 4, 8], ids=["dense", "4 bits", "8 bits"])

# Rows of each step, and how many other requests it has at most.
WAYS = {
    "token by token": ([1] * TOKENS, 0),
    "small chunks": ([2, 3, 5, 7, 8, 9, 12, 17, 20], 0),
    "drafts after a chunk": ([40, 1, 5, 9, 3, 8, 1, 16], 0),
    "decodes among few": ([70, *[1] * 13], 5),
    "chunks among many": ([33, 1, 1, 32, 4, 12], 40),
}


def model_of(dtype, bits, family="qwen2"):
    weights = checkpoint(
        family, layers=LAYERS, bits=bits, scale_dtype=dtype, max_position_embeddings=2 * LONG
    )
    return dispatch_model("a folder", weights, 2, dtype=dtype, enable_flash_attn=True)


def ids_of(count):
    return np.random.default_rng(7).integers(0, VOCABULARY, count).tolist()


class Pool:
    """Pages in random order, and requests that take some."""

    def __init__(self, model):
        attention = model.layers_inner[0].self_attn
        sizes = (attention.num_kv_heads, PAGE, attention.head_dim)
        self.storage = PagedStorage(LAYERS, NUM_PAGES, *sizes, model.precision)
        self._random = np.random.default_rng(3)
        self._free = self._random.permutation(NUM_PAGES).tolist()

    def take(self, tokens):
        return [self._free.pop() for _ in range(-(-tokens // PAGE))]

    def strangers(self, most):
        requests = []
        for _ in range(self._random.integers(1, most + 1) if most else 0):
            ids = self._random.integers(0, VOCABULARY, self._random.integers(1, 6)).tolist()
            requests.append(PackedRequest(ids, len(ids), self.take(len(ids))))
        return requests


def logits_of(model, ids, chunks, strangers=0, *, invariant=True):
    """The logits [T, V] of a request that is computed in these chunks of rows, among others."""
    pool, start, found = Pool(model), 0, []
    pages = pool.take(len(ids))
    for rows in chunks:
        before, after = pool.strangers(strangers), pool.strangers(strangers // 3)
        request = PackedRequest(ids[start : start + rows], start + rows, pages, num_logits=rows)
        batch = Batch([*before, request, *after], pool.storage, batch_invariant=invariant)
        logits = packed_logits(model, batch, pool.storage)
        found.append(logits[len(before) : len(before) + rows])
        mx.eval(found)
        start += rows
    assert start == len(ids)
    return mx.concatenate(found)


def ways_that_differ(model, **options):
    expected = logits_of(model, ids_of(TOKENS), [TOKENS], **options)
    return [
        way
        for way, (chunks, strangers) in WAYS.items()
        if not mx.array_equal(logits_of(model, ids_of(TOKENS), chunks, strangers, **options), expected)
    ]


@each_bits
@each_dtype
def test_the_bits_of_a_request_do_not_depend_on_its_steps(dtype, bits):
    assert ways_that_differ(model_of(dtype, bits)) == []


@each_dtype
def test_heads_of_another_size_and_norms_of_heads(dtype):
    assert ways_that_differ(model_of(dtype, 4, "qwen3")) == []


def test_without_it_bits_depend_on_the_number_of_rows():
    assert "token by token" in ways_that_differ(model_of(mx.float32, 4), invariant=False)


@each_dtype
def test_a_long_context(dtype):
    model, ids = model_of(dtype, 4), ids_of(LONG)
    expected = logits_of(model, ids, [LONG])[-12:]
    for end in ([1] * 12, [5, 7], [3, 1, 8]):
        actual = logits_of(model, ids, [100, LONG - 112, *end], 3)[-12:]
        assert mx.array_equal(actual, expected), end


def test_the_native_block_equals_its_layers_bit_by_bit(monkeypatch):
    model = model_of(mx.bfloat16, 4)
    expected = logits_of(model, ids_of(TOKENS), [40, 43])
    monkeypatch.setattr(packed, "fused_operation", lambda *arguments: None)
    assert mx.array_equal(logits_of(model, ids_of(TOKENS), [40, 43]), expected)


def test_it_holds_for_operations_made_inside_only():
    set_mode = load_extension().set_batch_invariant
    with batch_invariant(True):
        with batch_invariant(True), batch_invariant(False):
            pass
        assert set_mode(True)
    assert not set_mode(False)
    with pytest.raises(KeyError), batch_invariant(True):
        raise KeyError
    assert not set_mode(False)


def digest(*, invariant=True):
    """Of the logits of all types and forms of weights."""
    models = [model_of(dtype, bits) for dtype in DTYPES for bits in (None, 4)]
    options = {"strangers": 9, "invariant": invariant}
    logits = [logits_of(model, ids_of(LONG), [LONG - 23, 1, 7, 15], **options) for model in models]
    return hashlib.sha256(np.array(mx.stack([each.astype(mx.float32) for each in logits]))).hexdigest()


def digest_of_process(threads, monkeypatch, *, invariant):
    monkeypatch.setenv("TINY_LLM_THREADS", str(threads))
    result = run_python("-c", f"from {__name__} import digest; print(digest(invariant={invariant}))")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    digests = {digest_of_process(threads, monkeypatch, invariant=True) for threads in (1, 2, 3, 16)}
    assert digests == {digest()}


@pytest.mark.parametrize("threads", [2, 16])
def test_without_it_the_same_number_of_threads_has_the_same_bits(threads, monkeypatch):
    """Whichever thread takes an item."""
    digests = {digest_of_process(threads, monkeypatch, invariant=False) for _ in range(2)}
    assert len(digests) == 1
