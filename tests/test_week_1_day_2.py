"""Week 1, day 2: rotary position embedding, in the pairing of the original paper and in that of Qwen2."""

import mlx.core as mx
import numpy as np
import pytest

from .support.cases import normal
from .support.tolerance import to_float64
from .tiny_llm_base import RoPE
from .utils import assert_rounded_once, in_each_precision, on_each_device

SEQ_LEN = 300
BASE = 10000


def rope_in_float64(x, positions, traditional, base):
    """Rotate by multiplying complex numbers; x [N, S, H, D], positions [S] or [N, S]."""
    half = x.shape[-1] // 2
    angle = positions[..., None] * base ** (-np.arange(half) / half)
    turn = np.exp(1j * np.broadcast_to(angle, (*x.shape[:2], half)))[:, :, None]
    if traditional:
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
    turned = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], axis=-1)


def check_rope(stream, precision, traditional, offset, positions, seq_len=SEQ_LEN, base=BASE, dims=64):
    """RoPE with that offset equals a rotation to these positions."""
    positions = np.array(positions)
    x = normal(3, positions.shape[-1], 5, dims, dtype=precision)
    with mx.stream(stream):
        result = RoPE(dims, seq_len, base, traditional=traditional)(x, offset)
        assert_rounded_once(result, rope_in_float64(to_float64(x), positions, traditional, base), precision)


def turned(pairs, traditional):
    """What RoPE makes of the pairs (1, 0) and (0, 1), which lie at `pairs`, at positions 0, 1 and 2."""
    x = np.zeros(4)
    x[pairs[0]], x[pairs[1]] = (1, 0), (0, 1)
    rotated = RoPE(4, 3, 100, traditional=traditional)(mx.broadcast_to(mx.array(x), (1, 3, 1, 4)))
    rotated = to_float64(rotated)[0, :, 0]
    return [rotated[:, pair] for pair in pairs]


@on_each_device
def test_task_1_rope_turns_one_pair_after_the_other(stream):
    """Pair 0 by 1 radian a position, pair 1 by 1/10: (1, 0) goes to (cos, sin), (0, 1) to (-sin, cos)."""
    position = np.arange(3)
    with mx.stream(stream):
        first, second = turned([[0, 1], [2, 3]], traditional=True)
    np.testing.assert_allclose(first, np.stack([np.cos(position), np.sin(position)], 1), atol=1e-6)
    slow = position / 10
    np.testing.assert_allclose(second, np.stack([-np.sin(slow), np.cos(slow)], 1), atol=1e-6)


@on_each_device
@in_each_precision
def test_task_1_rope_starts_at_its_offset(stream, precision):
    """Without one at 0; a slice names the positions of all rows."""
    check_rope(stream, precision, True, None, np.arange(70))
    check_rope(stream, precision, True, slice(0, 1), [0])
    check_rope(stream, precision, True, slice(41, 111), np.arange(41, 111))
    check_rope(stream, precision, True, slice(230, 300), np.arange(230, 300))


def check_offset_for_each_row(stream, precision, traditional):
    starts = np.array([7, 0, 230])
    slices = [slice(int(start), int(start) + 70) for start in starts]
    check_rope(stream, precision, traditional, slices, starts[:, None] + np.arange(70))


@on_each_device
@in_each_precision
def test_task_1_rope_has_an_offset_for_each_row(stream, precision):
    """A list of slices, one for each row."""
    check_offset_for_each_row(stream, precision, traditional=True)


@on_each_device
def test_task_2_rope_pairs_are_half_a_vector_apart(stream):
    """The same turns as in task 1, of elements 0 and 2, and of 1 and 3."""
    position = np.arange(3)
    with mx.stream(stream):
        first, second = turned([[0, 2], [1, 3]], traditional=False)
    np.testing.assert_allclose(first, np.stack([np.cos(position), np.sin(position)], 1), atol=1e-6)
    slow = position / 10
    np.testing.assert_allclose(second, np.stack([-np.sin(slow), np.cos(slow)], 1), atol=1e-6)


@on_each_device
@in_each_precision
def test_task_2_rope_turns_elements_half_a_vector_apart(stream, precision):
    """At the positions that the offset names."""
    check_rope(stream, precision, False, None, np.arange(70))
    check_rope(stream, precision, False, slice(41, 111), np.arange(41, 111))
    check_offset_for_each_row(stream, precision, traditional=False)


@on_each_device
@pytest.mark.parametrize("dims", [2, 80, 128])
def test_task_2_rope_of_other_head_sizes(stream, dims):
    """Any even head size will do, and so will a single pair."""
    check_rope(stream, mx.float32, False, None, np.arange(33), dims=dims)


@on_each_device
def test_task_2_rope_is_exact_far_from_the_start(stream):
    """With Qwen2's own sizes, position 32767 is as exact as position 0: its angle is no float32 number."""
    far = slice(32700, 32768)
    positions = np.arange(far.start, far.stop)
    check_rope(stream, mx.float32, False, far, positions, seq_len=32768, base=1000000, dims=128)


def test_task_2_rope_keeps_the_product_of_query_and_key_at_equal_distance():
    """What rotation is for: scores depend on how far apart two tokens are, not on where they stand."""
    rope = RoPE(64, SEQ_LEN)
    query, key = normal(1, 1, 1, 64, seed=1), normal(1, 1, 1, 64, seed=2)
    near = to_float64(mx.sum(rope(query, slice(12, 13)) * rope(key, slice(5, 6))))
    far = to_float64(mx.sum(rope(query, slice(262, 263)) * rope(key, slice(255, 256))))
    other = to_float64(mx.sum(rope(query, slice(12, 13)) * rope(key, slice(6, 7))))
    assert abs(near - far) < 1e-4 < abs(near - other)


def test_task_2_rope_layers_of_equal_sizes_share_their_tables():
    """A second layer costs no memory; a layer with another base has tables of its own."""

    def memory_with(layer):
        layers.append(layer)
        mx.eval(layer(mx.zeros((1, 1, 1, 128)), slice(8191, 8192)))
        mx.synchronize()
        return mx.get_active_memory()

    layers = []
    with_one = memory_with(RoPE(128, 8192, 10000))
    with_two = memory_with(RoPE(128, 8192, 10000, traditional=True))
    with_three = memory_with(RoPE(128, 8192, 20000))
    assert with_two == with_one
    assert with_three - with_two >= 2 * 8192 * 64 * 4


@pytest.mark.parametrize(
    "offset",
    [
        slice(231, 301),
        slice(300, 370),
        slice(-70, 0),
        slice(0, 69),
        slice(0, 140, 2),
        slice(0, 70, 2),
        [slice(0, 70)],
        [],
    ],
    ids=str,
)
def test_task_2_rope_refuses_positions_that_do_not_fit(offset):
    """Every slice has S positions below seq_len, and a list has one slice per row."""
    with pytest.raises(ValueError, match="RoPE: offset: got"):
        RoPE(64, SEQ_LEN)(mx.zeros((3, 70, 5, 64)), offset)


def test_task_2_rope_refuses_sequences_that_outgrow_its_tables():
    """Without an offset too, position 300 is one too many."""
    with pytest.raises(ValueError, match=r"301.*299"):
        RoPE(64, SEQ_LEN)(mx.zeros((1, 301, 1, 64)))


def test_task_2_rope_refuses_wrong_sizes_and_types():
    """Pairs need an even head size, and the input must have that size and a floating point type."""
    with pytest.raises(ValueError, match="RoPE: dims: got 63"):
        RoPE(63, SEQ_LEN)
    with pytest.raises(ValueError, match=r"RoPE: x: got \(1, 5, 1, 32\).*64"):
        RoPE(64, SEQ_LEN)(mx.zeros((1, 5, 1, 32)))
    with pytest.raises(ValueError, match="int32"):
        RoPE(64, SEQ_LEN)(mx.zeros((1, 5, 1, 64), dtype=mx.int32))
