"""When a block runs in MLX's fused operations: not with overridden layers, nor with replaced weights."""

import copy
from dataclasses import replace

import mlx.core as mx
import pytest

from tiny_llm.cache.batching import BatchingKvCache
from tiny_llm.cache.full import TinyKvFullCache
from tiny_llm.layer_norm import RMSNorm
from tiny_llm.models import dispatch_model
from tiny_llm.models.gpu_block import run_on_gpu
from tiny_llm.models.layers import MLP
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool
from tiny_llm.positional_encoding import RoPE

from ..support.cases import normal
from ..support.gpu import on_a_gpu
from ..support.models.blocks import HIDDEN, block_of, by_layers, full
from ..support.models.checkpoints import checkpoint, tokens
from ..support.models.logits import assert_logits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

ROUNDING = 1e-5  # in float32, relative to the largest output
REFUSAL = r": got .+, expected .+"


def exact_block(family="qwen2", **options):
    return block_of(family, scale_dtype=mx.float32, **options)


def fused_block(family="qwen2", **options):
    with on_a_gpu():
        block = exact_block(family, **options)
    assert block.gpu_weights is not None
    return block


def runs_fused(block, x=None, mask="causal", cache=None):
    x = normal(1, 1, HIDDEN) if x is None else x
    cache = full(block, 5) if cache is None else cache
    with on_a_gpu():
        return run_on_gpu(block, x, 5, cache, mask, False) is not None


def layers_on_a_gpu(block, x):
    with on_a_gpu():
        y = by_layers(block, x, full(block, 5), 5)
        mx.eval(y)
    return y


def forward_on_a_gpu(block, x, cache, offset=5):
    with on_a_gpu():
        y = block.forward(x, offset, cache, "causal")
        mx.eval(y)
    return y


def test_steps_that_this_form_does_not_compute():
    """The layers compute them, or raise an error."""
    block = fused_block()
    assert runs_fused(block)
    assert run_on_gpu(block, normal(1, 1, HIDDEN), 5, full(block, 5), "causal", False) is None  # on the CPU
    assert not runs_fused(block, mask=None)
    assert not runs_fused(block, mask=mx.zeros((1, 1)))
    assert not runs_fused(block, x=normal(1, HIDDEN))
    assert not runs_fused(block, x=mx.zeros((0, 1, HIDDEN)))
    assert not runs_fused(block, x=normal(1, 1, HIDDEN, dtype=mx.float16), cache=full(block, 5, mx.float16))
    assert not runs_fused(block, cache=TinyKvPagedCache(TinyKvPagedPool(16)))
    assert not runs_fused(block, cache=BatchingKvCache(1, 9))
    with on_a_gpu():
        grouped = exact_block(flash=False)
    assert grouped.self_attn.ops.fused_blocks == ()
    assert grouped.gpu_weights is None


class Negated(TinyKvFullCache):
    def update_and_fetch(self, key, value, mask_length=None, mask=None):
        keys, values, length, mask = super().update_and_fetch(key, value, mask_length, mask)
        return keys, -values, length, mask


class Doubled(MLP):
    def __call__(self, x, **options):
        return 2 * super().__call__(x, **options)


class Unscaled(RMSNorm):
    def __call__(self, x):
        return x


class Reversed(type(block_of().self_attn)):
    def project(self, x, norm):
        query, key, value = super().project(x, norm)
        return query[..., ::-1], key, value


class Silent(type(block_of().self_attn)):
    def forward(self, x, *arguments, residual=None, **options):
        return residual


def other_attend_operation(block):
    block.self_attn.ops = replace(block.self_attn.ops, attend=lambda qkv, cache, mask: mx.zeros((1, 1, 128)))


def doubled_mlp(block):
    mlp = block.mlp
    block.mlp = Doubled(mlp.dim, mlp.hidden_dim, mlp.w_gate, mlp.w_up, mlp.w_down)


def no_input_norm(block):
    block.input_layernorm = Unscaled(HIDDEN, block.input_layernorm.weight)


def no_norm_after_attention(block):
    block.post_attention_layernorm = Unscaled(HIDDEN, block.post_attention_layernorm.weight)


def reversed_queries(block):
    block.self_attn.__class__ = Reversed


def no_attention(block):
    block.self_attn.__class__ = Silent


def double_up(block):
    up = block.mlp.w_up
    up.scales, up.biases = 2 * up.scales, 2 * up.biases


def other_value(block):
    block.self_attn.wv = exact_block(seed=5).self_attn.wv


def other_down(block):
    block.mlp.w_down = exact_block(seed=5).mlp.w_down


def other_bias(block):
    block.self_attn.bk = block.self_attn.bk + 1


def other_rope(block):
    rope = block.self_attn.rope
    block.self_attn.rope = RoPE(rope.dims, rope.seq_len, rope.base, traditional=True)


def other_eps(block):
    block.input_layernorm.eps = 0.5


def norm_in_place(block):
    block.post_attention_layernorm.weight[3] = 9


@pytest.mark.parametrize(
    "change",
    [
        other_attend_operation,
        doubled_mlp,
        no_input_norm,
        no_norm_after_attention,
        reversed_queries,
        no_attention,
        double_up,
        other_value,
        other_down,
        other_bias,
        other_rope,
        other_eps,
        norm_in_place,
    ],
)
def test_changes_of_a_block_take_effect(change):
    block, x = fused_block(), normal(1, 1, HIDDEN)
    before = forward_on_a_gpu(block, x, full(block, 5))
    change(block)
    after = forward_on_a_gpu(block, x, full(block, 5))
    assert not mx.allclose(after, before, rtol=1e-3, atol=1e-3)
    assert_logits(after, layers_on_a_gpu(block, x), ROUNDING)


def other_query_norm(block):
    block.self_attn.query_norm.weight = block.self_attn.query_norm.weight + 1


def no_key_norm(block):
    norm = block.self_attn.key_norm
    block.self_attn.key_norm = Unscaled(norm.dim, norm.weight)


def other_eps_of_keys(block):
    block.self_attn.key_norm.eps = 3.0


@pytest.mark.parametrize("change", [other_query_norm, no_key_norm, other_eps_of_keys])
def test_changes_of_the_norms_of_heads_take_effect(change):
    block, x = fused_block("qwen3"), normal(1, 1, HIDDEN)
    before = forward_on_a_gpu(block, x, full(block, 5))
    change(block)
    after = forward_on_a_gpu(block, x, full(block, 5))
    assert not mx.allclose(after, before, rtol=1e-3, atol=1e-3)
    assert_logits(after, layers_on_a_gpu(block, x), ROUNDING)


def test_overridden_methods_of_a_cache_are_called():
    block, x = fused_block(), normal(1, 4, HIDDEN)
    expected = by_layers(block, x, Negated(), 0)
    assert_logits(forward_on_a_gpu(block, x, Negated(), offset=0), expected, ROUNDING)


def test_a_copy_of_a_block_runs_on_its_own_weights():
    block, x = fused_block(), normal(1, 1, HIDDEN)
    other = copy.deepcopy(block)
    assert runs_fused(other)
    other_down(other)
    assert not runs_fused(other)
    assert runs_fused(block)
    assert_logits(
        forward_on_a_gpu(other, x, full(other, 5)), by_layers(other, x, full(other, 5), 5), ROUNDING
    )


@pytest.mark.parametrize("part", ["self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj"])
@pytest.mark.parametrize("other", [{"bits": 8}, {"group_size": 32}, {"bits": None}], ids=str)
def test_parts_of_different_formats_run_one_by_one(part, other):
    holder, name = part.split(".")

    def model():
        weights = checkpoint(layers=2, scale_dtype=mx.float32)
        source = checkpoint(layers=1, seed=3, scale_dtype=mx.float32, **other).model.layers[0]
        setattr(getattr(weights.model.layers[1], holder), name, getattr(getattr(source, holder), name))
        return dispatch_model("a folder", weights, 2, dtype=mx.float32, enable_flash_attn=True)

    def logits(model):
        result = model(tokens(2, 9), 0, model.create_kv_cache())
        mx.eval(result)
        return result

    with on_a_gpu():
        mixed = model()
        assert [block.gpu_weights is not None for block in mixed.layers_inner] == [True, False]
        assert {type(layer) for layer in mixed.create_batch_cache(2, 9)} == {BatchingKvCache}
        actual = logits(mixed)
    assert_logits(actual, logits(model()), ROUNDING)


@pytest.mark.parametrize(
    ("x", "offset", "rows"),
    [
        (normal(1, HIDDEN), 5, 1),
        (normal(1, 1, HIDDEN + 1), 5, 1),
        (normal(2, 1, HIDDEN), [5, 5, 5], 2),
        (normal(2, 1, HIDDEN), [5, 4096], 2),
        (normal(1, 1, HIDDEN), 4096, 1),
        (normal(1, 3, HIDDEN), 4094, 1),
        (normal(1, 1, HIDDEN), -1, 1),
        (normal(3, 1, HIDDEN), 5, 2),
        (normal(1, 1, HIDDEN).astype(mx.int32), 5, 1),
    ],
    ids=lambda value: str(value.shape) if isinstance(value, mx.array) else str(value),
)
def test_errors_are_those_of_the_layers(x, offset, rows):
    block = fused_block()
    with pytest.raises(ValueError, match=REFUSAL) as expected, on_a_gpu():
        mx.eval(by_layers(block, x, full(block, 5, rows=rows), offset))
    cache = full(block, 5, rows=rows)
    with pytest.raises(ValueError, match=REFUSAL) as refused, on_a_gpu():
        mx.eval(block.forward(x, offset, cache, "causal"))
    assert str(refused.value) == str(expected.value)
    assert cache.offset == 5
