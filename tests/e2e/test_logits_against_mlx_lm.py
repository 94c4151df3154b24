"""Our models and mlx-lm's give the same logits, each loaded by its own program from the same folder.

The peer computes in float32 throughout: its products of 16 bits are no measure on a CPU.
"""

import mlx.core as mx
import pytest

from tiny_llm.kv_cache import BatchingKvCache
from tiny_llm.loading import load
from tiny_llm.models import dispatch_model
from tiny_llm.models.names import FAMILIES

from ..loading.folders import write_folder
from ..support.covering import pairwise
from ..support.models.checkpoints import checkpoint, tokens
from ..support.models.logits import TOLERANCE, assert_logits
from ..support.models.mlx_lm_model import peer

pytestmark = pytest.mark.usefixtures("on_the_cpu")

DTYPES = [mx.float32, mx.bfloat16, mx.float16]
# Every way to run a model with a cache: the week it is from, and its options.
CACHED = {
    "packed": (2, {}),
    "flash": (2, {"enable_flash_attn": True}),
    "paged": (3, {"page_size": 7}),
    "one page": (3, {}),
}
WAYS = CACHED | {"without a cache": (1, {})}

in_each_precision = pytest.mark.parametrize("dtype", DTYPES, ids=str)
in_each_cached_way = pytest.mark.parametrize("how", CACHED)


def ours(folder, how, dtype=mx.float32):
    week, options = WAYS[how]
    return dispatch_model(str(folder), load(str(folder)).mlx_model, week, dtype=dtype, **options)


def read(model, inputs):
    """The logits of a text that is read at once."""
    if hasattr(model, "create_kv_cache"):
        return model(inputs, 0, model.create_kv_cache())
    return model(inputs)


@pytest.fixture(scope="module", params=list(FAMILIES))
def folder(request, tmp_path_factory):
    """The common kind of checkpoint: 4 bits, bfloat16, tied, in two files."""
    return write_folder(tmp_path_factory.mktemp("model"), checkpoint(request.param), shards=2)


@pytest.fixture(scope="module")
def theirs(folder):
    return peer(folder)


@pytest.fixture(scope="module")
def expected(theirs):
    """The peer's logits of one row of 70 tokens."""
    return theirs(tokens(1, 70))


@pairwise(
    {
        "family": list(FAMILIES),
        "tied": [True, False],
        "bits": [4, 8, None],
        "stored": DTYPES,
        "shards": [1, 3],
    }
)
def test_every_kind_of_checkpoint(tmp_path, family, tied, bits, stored, shards):
    """Run in float32 in every way, and in the type that it is stored in."""
    weights = checkpoint(family, tied=tied, bits=bits, scale_dtype=stored, layers=2)
    folder, inputs = write_folder(tmp_path, weights, shards=shards), tokens(1, 33)
    logits = peer(folder)(inputs)
    for how in WAYS:
        assert_logits(read(ours(folder, how), inputs), logits)
        assert_logits(read(ours(folder, how, stored), inputs), logits, TOLERANCE[stored])


@pytest.mark.parametrize("group_size", [32, 128])
def test_other_sizes_of_groups(tmp_path, group_size):
    folder = write_folder(tmp_path, checkpoint(group_size=group_size, intermediate_size=256))
    inputs = tokens(1, 33)
    assert_logits(read(ours(folder, "packed"), inputs), peer(folder)(inputs))


@in_each_precision
def test_without_a_cache(folder, theirs, dtype):
    inputs = tokens(2, 70)
    logits = read(ours(folder, "without a cache", dtype), inputs)
    assert logits.dtype == dtype
    assert_logits(logits, theirs(inputs), TOLERANCE[dtype])


@pairwise({"how": list(CACHED), "chunk": [1, 16, 33, 70], "dtype": DTYPES})
def test_in_chunks_of_any_length(folder, expected, how, chunk, dtype):
    """One token at a time, the whole prompt at once, and sizes in between."""
    model, inputs = ours(folder, how, dtype), tokens(1, 70)
    cache = model.create_kv_cache()
    pieces = [model(inputs[:, start : start + chunk], start, cache) for start in range(0, 70, chunk)]
    logits = mx.concatenate(pieces, axis=1)
    assert logits.dtype == dtype
    assert_logits(logits, expected, TOLERANCE[dtype])


@in_each_precision
@in_each_cached_way
def test_after_a_rewind(folder, expected, how, dtype):
    """Removed tokens have no effect."""
    model, inputs = ours(folder, how, dtype), tokens(1, 70)
    cache = model.create_kv_cache()
    model(inputs[:, :40], 0, cache)
    model(tokens(1, 9, seed=5), 40, cache)
    for layer in cache:
        layer.rewind(16)
    assert_logits(model(inputs[:, 33:], 33, cache), expected[:, 33:], TOLERANCE[dtype])


@in_each_precision
@in_each_cached_way
def test_a_batch_of_ragged_lengths(folder, theirs, how, dtype):
    """Three requests of different lengths, and an idle slot, decode side by side as each would alone."""
    model = ours(folder, how, dtype)
    lengths = {0: 5, 2: 40, 3: 33}
    prompts = {slot: tokens(1, length + 6, seed=slot) for slot, length in lengths.items()}
    batch = [BatchingKvCache(4, 100) for _ in range(model.num_hidden_layers)]
    for slot, length in lengths.items():
        cache = model.create_kv_cache()
        model(prompts[slot][:, :length], 0, cache)
        for layer, prefilled in zip(batch, cache, strict=True):
            layer.add_request(prefilled, slot)
    expected = {slot: theirs(prompt) for slot, prompt in prompts.items()}
    done = 0
    for step in (1, 2, 1, 2):  # several tokens at a time are as good as one
        inputs, offsets = mx.zeros((4, step), mx.int32), [0] * 4
        for slot, length in lengths.items():
            offsets[slot] = length + done
            inputs[slot] = prompts[slot][0, length + done : length + done + step]
        logits = model(inputs, offsets, batch)
        for slot, start in enumerate(offsets):
            if slot in lengths:
                wanted = expected[slot][:, start : start + step]
                assert_logits(logits[slot : slot + 1], wanted, TOLERANCE[dtype])
        done += step
