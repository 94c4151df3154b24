"""When a block runs as one native operation: not with overridden layers, and made again after changes."""

import copy
from dataclasses import replace

import mlx.core as mx
import pytest

from tiny_llm.layer_norm import RMSNorm
from tiny_llm.models import cpu_block
from tiny_llm.models.layers import MLP
from tiny_llm.positional_encoding import RoPE

from ..support.cases import normal
from ..support.models.blocks import HIDDEN, block_of, by_layers, full, step

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def steps_natively(block, x=None, mask="causal", cache=None):
    x = normal(1, 1, HIDDEN) if x is None else x
    cache = full(block, 5) if cache is None else cache
    return cpu_block.run_on_cpu(block, x, 5, cache, mask, False) is not None


def test_steps_without_a_native_operation_run_the_layers():
    """The layers compute them, or raise an error."""
    block = block_of()
    assert steps_natively(block)
    assert not steps_natively(block, mask=None)
    assert not steps_natively(block, mask=mx.zeros((1, 1)))
    assert steps_natively(block, x=normal(1, 33, HIDDEN))
    assert not steps_natively(block, x=normal(1, HIDDEN))
    assert not steps_natively(block, x=mx.zeros((0, 1, HIDDEN)))
    half = normal(1, 1, HIDDEN, dtype=mx.float16)
    assert not steps_natively(block, x=half, cache=full(block, 5, mx.float16))
    assert not steps_natively(block_of(bits=None, scale_dtype=mx.float32))
    assert block_of(flash=False).self_attn.ops.fused_blocks == ()


class Doubled(MLP):
    def __call__(self, x, **options):
        return 2 * super().__call__(x, **options)


class Unscaled(RMSNorm):
    def __call__(self, x):
        return x


def test_an_overridden_layer_is_run():
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
def test_overridden_attention_is_run(kind):
    block = block_of()
    block.self_attn.__class__ = kind
    assert not steps_natively(block)


def test_a_replaced_attend_operation_is_run():
    block = block_of()
    block.self_attn.ops = replace(block.self_attn.ops, attend=lambda tokens, cache, mask: None)
    assert not steps_natively(block)


@pytest.mark.parametrize("name", ["wk", "w_up"])
def test_matrices_of_two_formats_run_one_by_one(name):
    block, other = block_of(), block_of(group_size=32)
    holder = "self_attn" if name == "wk" else "mlp"
    setattr(getattr(block, holder), name, getattr(getattr(other, holder), name))
    assert not steps_natively(block)


def test_replacing_quantized_by_dense_weights_frees_the_operation():
    block = block_of()
    assert steps_natively(block)
    block.mlp.w_down = block.mlp.w_down.dequantize()
    assert not steps_natively(block)
    assert block.fused is None


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
def test_replaced_weights_take_effect(change):
    block, x = block_of(), normal(1, 1, HIDDEN)
    before, taken = step(block, x, full(block, 5), 5)
    mx.eval(before)
    assert taken
    change(block)
    after, taken = step(block, x, full(block, 5), 5)
    assert taken
    assert not mx.array_equal(after, before)
    assert mx.array_equal(after, by_layers(block, x, full(block, 5), 5))


def test_a_block_that_has_run_can_be_copied():
    block = block_of()
    assert steps_natively(block)
    other = copy.deepcopy(block)
    assert other.fused is None
    assert steps_natively(other)
    x = normal(1, 1, HIDDEN)
    assert mx.array_equal(step(other, x, full(other, 5), 5)[0], step(block, x, full(block, 5), 5)[0])
