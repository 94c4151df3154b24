"""A block on few tokens is one native operation: the same bits and caches as its layers one by one."""

import copy
from dataclasses import replace

import mlx.core as mx
import pytest

from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.layer_norm import RMSNorm
from tiny_llm.models import dispatch_model
from tiny_llm.positional_encoding import RoPE
from tiny_llm.transformer import native_block
from tiny_llm.transformer.layers import MLP

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.checkpoints import checkpoint
from ..support.rows import graph_of

pytestmark = pytest.mark.usefixtures("on_the_cpu")
HIDDEN = 128
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
each_family = pytest.mark.parametrize("family", ["qwen2", "qwen3"])


def block_of(family="qwen2", dtype=mx.float32, flash=True, **options):
    weights = checkpoint(family, layers=1, max_position_embeddings=4096, **options)
    return dispatch_model("a folder", weights, 2, enable_flash_attn=flash, dtype=dtype).layers_inner[0]


def step(block, x, cache, offset, mask="causal"):
    """The result of a block, and whether it was that of the native operation."""
    native = native_block.run_natively(block, x, offset, cache, mask)
    if native is not None:
        return native, True
    return by_layers(block, x, cache, offset, mask), False


def by_layers(block, x, cache, offset, mask="causal"):
    hidden = block.self_attn.forward(x, offset, cache, mask, norm=block.input_layernorm, residual=x)
    return block.mlp(hidden, norm=block.post_attention_layernorm, residual=hidden)


def full(block, length, dtype=mx.float32, rows=1):
    cache = TinyKvFullCache()
    if length:
        shape = (rows, block.num_kv_heads, length, block.self_attn.head_dim)
        cache.update_and_fetch(*(normal(*shape, dtype=dtype, seed=seed) for seed in (7, 8)))
    return cache


def batch(block, lengths, dtype=mx.float32):
    cache = BatchingKvCache(len(lengths), 4000)
    for slot, length in enumerate(lengths):
        if length is not None:
            cache.add_request(full(block, length, dtype), slot)
    return cache


def contents(cache):
    requests = [cache] if isinstance(cache, TinyKvFullCache) else cache.kv_caches
    return [(request.offset, *request.key_values) for request in requests if request is not None]


def assert_same_contents(one, other):
    for (offset, *pair), (expected, *same) in zip(contents(one), contents(other), strict=True):
        assert offset == expected
        assert all(mx.array_equal(x, y) for x, y in zip(pair, same, strict=True))


@each_dtype
@each_family
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("length", [0, 30, 253, 3000])
def test_one_request(length, bits, family, dtype):
    """Steps that fill a block of the cache and go beyond it."""
    block = block_of(family, dtype, bits=bits)
    native, plain = full(block, length, dtype), full(block, length, dtype)
    for L in (1, 3, 8):
        x = normal(1, L, HIDDEN, dtype=dtype, seed=L)
        expected = by_layers(block, x, plain, plain.offset)
        got, taken = step(block, x, native, native.offset)
        assert taken
        assert got.dtype == dtype
        assert mx.array_equal(got, expected)
        assert_same_contents(native, plain)


@each_dtype
@each_family
@pytest.mark.parametrize("lengths", [(5, 9, 12), (None, 255, None, 3000, 0, None)], ids=str)
def test_a_batch_with_idle_slots(lengths, family, dtype):
    block = block_of(family, dtype)
    native, plain = batch(block, lengths, dtype), batch(block, lengths, dtype)
    for L, add in ((1, 0), (4, 1)):
        x = normal(len(lengths), L, HIDDEN, dtype=dtype, seed=L)
        offset = [(length or 0) + add for length in lengths]
        expected = by_layers(block, x, plain, offset)
        got, taken = step(block, x, native, offset)
        assert taken
        assert mx.array_equal(got, expected)
        assert_same_contents(native, plain)


@each_dtype
def test_several_rows_of_one_cache(dtype):
    block = block_of(dtype=dtype)
    native, plain = full(block, 30, dtype, rows=3), full(block, 30, dtype, rows=3)
    x = normal(3, 2, HIDDEN, dtype=dtype)
    got, taken = step(block, x, native, 30)
    assert taken
    assert mx.array_equal(got, by_layers(block, x, plain, 30))
    assert_same_contents(native, plain)


def test_a_step_that_is_refused_changes_nothing():
    block, cache = block_of(), TinyKvFullCache()
    x = normal(1, 1, HIDDEN)
    with pytest.raises(ValueError, match="offset"):
        native_block.run_natively(block, x, 4096, cache, "causal")
    assert cache.offset == 0
    assert cache.key_values is None


def test_what_was_fetched_before_a_step_stays_as_it_was():
    block, cache, x = block_of(), None, normal(1, 1, HIDDEN)
    cache = full(block, 30)
    keys, values = cache.key_values
    kept = [mx.array(keys), mx.array(values)]
    mx.eval(kept, keys, values)
    mx.eval(step(block, x, cache, 30)[0])
    cache.rewind(5)
    mx.eval(step(block, x, cache, 26)[0])
    assert mx.array_equal(keys, kept[0])
    assert mx.array_equal(values, kept[1])


def test_a_block_that_has_run_can_be_copied():
    block = block_of()
    assert steps_natively(block)
    other = copy.deepcopy(block)
    assert other.native is None
    assert steps_natively(other)
    x = normal(1, 1, HIDDEN)
    assert mx.array_equal(step(other, x, full(other, 5), 5)[0], step(block, x, full(block, 5), 5)[0])


@each_family
def test_a_model_takes_it(family):
    """For a step, not for a prompt; the logits are those of the layers."""
    weights = checkpoint(family)
    model, ids = dispatch_model("a folder", weights, 2, enable_flash_attn=True), mx.array([[3]])
    cache, plain = model.create_kv_cache(), model.create_kv_cache()
    prompt = mx.arange(9)[None]
    assert mx.array_equal(model(prompt, 0, cache), model(prompt, 0, plain))
    assert all(block.native is None for block in model.layers_inner)
    logits = model(ids, 9, cache)
    assert all(block.native is not None for block in model.layers_inner)
    with graph_of("tiny_llm.transformer.native_block"):
        assert mx.array_equal(model(ids, 9, plain), logits)


def steps_natively(block, x=None, mask="causal", cache=None):
    x = normal(1, 1, HIDDEN) if x is None else x
    cache = full(block, 5) if cache is None else cache
    return native_block.run_natively(block, x, 5, cache, mask) is not None


def test_what_has_no_such_operation():
    """The layers do it, or say what is wrong."""
    block = block_of()
    assert steps_natively(block)
    assert not steps_natively(block, mask=None)
    assert not steps_natively(block, mask=mx.zeros((1, 1)))
    assert not steps_natively(block, x=normal(1, 9, HIDDEN))
    assert not steps_natively(block, x=normal(1, HIDDEN))
    assert not steps_natively(block, x=mx.zeros((0, 1, HIDDEN)))
    half = normal(1, 1, HIDDEN, dtype=mx.float16)
    assert not steps_natively(block, x=half, cache=full(block, 5, mx.float16))
    assert not steps_natively(block_of(bits=None, scale_dtype=mx.float32))
    assert block_of(flash=False).self_attn.ops.run is None


class Doubled(MLP):
    def __call__(self, x, **options):
        return 2 * super().__call__(x, **options)


class Unscaled(RMSNorm):
    def __call__(self, x):
        return x


def test_a_layer_of_another_kind_runs_itself():
    block = block_of()
    assert steps_natively(block)
    mlp, norm = block.mlp, block.input_layernorm
    block.mlp = Doubled(mlp.dim, mlp.hidden_dim, mlp.w_gate, mlp.w_up, mlp.w_down)
    assert not steps_natively(block)
    block.mlp = mlp
    assert steps_natively(block)
    block.input_layernorm = Unscaled(norm.dim, norm.weight)
    assert not steps_natively(block)


class Reversed(type(block_of().self_attn)):
    def project(self, x, norm):
        query, key, value = super().project(x, norm)
        return query[..., ::-1], key, value


class Silent(type(block_of().self_attn)):
    def forward(self, x, *arguments, residual=None, **options):
        return residual


@pytest.mark.parametrize("kind", [Reversed, Silent])
def test_attention_of_another_kind_runs_itself(kind):
    block = block_of()
    block.self_attn.__class__ = kind
    assert not steps_natively(block)


def test_another_way_to_attend_is_taken():
    block = block_of()
    block.self_attn.ops = replace(block.self_attn.ops, attend=lambda tokens, cache, mask: None)
    assert not steps_natively(block)


@pytest.mark.parametrize("name", ["wk", "w_up"])
def test_matrices_of_two_formats_run_one_by_one(name):
    block, other = block_of(), block_of(group_size=32)
    holder = "self_attn" if name == "wk" else "mlp"
    setattr(getattr(block, holder), name, getattr(getattr(other, holder), name))
    assert not steps_natively(block)


def test_dense_weights_let_go_of_the_packed_ones():
    block = block_of()
    assert steps_natively(block)
    block.mlp.w_down = block.mlp.w_down.dequantize()
    assert not steps_natively(block)
    assert block.native is None


def other_rope(block):
    rope = block.self_attn.rope
    block.self_attn.rope = RoPE(rope.dims, rope.seq_len, rope.base, traditional=True)


def double_up(block):
    up = block.mlp.w_up
    up.scales, up.biases = 2 * up.scales, 2 * up.biases


def other_down(block):
    block.mlp.w_down = block_of(seed=5).mlp.w_down


def bias_in_place(block):
    block.self_attn.bq[:10] = 3


def norm_in_place(block):
    block.post_attention_layernorm.weight[3] = 9


def other_eps(block):
    block.input_layernorm.eps = 0.5


@pytest.mark.parametrize(
    "change", [double_up, other_down, bias_in_place, norm_in_place, other_eps, other_rope]
)
def test_weights_that_change_count_from_then_on(change):
    block, x = block_of(), normal(1, 1, HIDDEN)
    before, taken = step(block, x, full(block, 5), 5)
    mx.eval(before)
    assert taken
    change(block)
    after, taken = step(block, x, full(block, 5), 5)
    assert taken
    assert not mx.array_equal(after, before)
    assert mx.array_equal(after, by_layers(block, x, full(block, 5), 5))


@each_family
def test_gradients_are_those_of_the_layers(family):
    """Along x the operation knows its own; along weights the layers run."""
    block, x = block_of(family), normal(1, 3, HIDDEN)

    def total(run):
        return lambda x: (run(block, x, full(block, 5), 5) * normal(1, 3, HIDDEN, seed=4)).sum()

    def natively(*arguments):
        y, taken = step(*arguments)
        assert taken
        return y

    assert mx.array_equal(mx.grad(total(natively))(x), mx.grad(total(by_layers))(x))

    def of_norm(run):
        def loss(weight):
            kept, block.input_layernorm.weight = block.input_layernorm.weight, weight
            try:
                return (run(block, x, full(block, 5), 5) ** 2).sum()
            finally:
                block.input_layernorm.weight = kept

        return mx.grad(loss)(block.input_layernorm.weight)

    assert mx.array_equal(of_norm(lambda *arguments: step(*arguments)[0]), of_norm(by_layers))
