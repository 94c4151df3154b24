"""The host makes exactly the expected launches: kernels, grids and arguments."""

import mlx.core as mx
import pytest

from ...support.cases import DTYPES, lengths
from ...support.covering import covering
from ...support.products.quantized import packed
from ..attention.arguments import UNBOUNDED, FastArguments, ReadableArguments
from ..host import gpu
from .expected import KEYS_PER_SPLIT, Call, Launch, attention, flat, product

pytestmark = [
    pytest.mark.skipif(gpu.IS_REAL, reason="a real GPU records nothing"),
    pytest.mark.usefixtures("metal_device"),
]

MASK_AXES = {mx.bool_: 1, mx.float32: 2, mx.float16: 3, mx.bfloat16: 4}  # of each kind of mask in the calls
INPUT_SLOTS, OUTPUT_SLOTS, ARGUMENTS_SLOT = {0, 1, 2, 3, 7, 8, 9, 10}, {4, 5}, 6
LENGTHS = ("q_lens", "kv_start", "kv_lens")

EDGES = {
    "L": [1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 96, 97, 1000, 20001],
    "S": [0, 1, 64, 511, 512, 513, 1023, 1024, 1025, 1536, 1537, 100001],
    "E": [1, 63, 64, 65, 80, 81, 96, 97, 127, 128, 129, 200, 255, 256],
    "dtype": DTYPES,
    "batch": [1, 2, 5],
    "heads": [(1, 1), (4, 1), (6, 6), (14, 2), (21, 3)],
    "causal": [False, True],
    "window": [None, (0, 0), (7, -1), (-1, 7), (-1, -1), (UNBOUNDED - 1, 5)],
    "softcap": [None, 0.5, 30.0],
    "sinks": [False, True],
    "mask": [None, *MASK_AXES],
    "lengths": [(), ("q_lens",), ("kv_start",), ("kv_lens",), LENGTHS],
    "batch_invariant": [False, True],
}


@pytest.fixture(autouse=True)
def nothing_runs():
    with gpu.record_only():
        yield


def spread(*shape, dtype=mx.float32):
    """An array of any shape that needs almost no memory: all axes but the last are broadcast."""
    return mx.broadcast_to(mx.zeros(shape[-1:], dtype), shape)


def dispatches_of(call):
    heads, kv_heads = call.heads
    query = spread(call.batch, heads, call.L, call.E, dtype=call.dtype)
    key = spread(call.batch, kv_heads, call.S, call.E, dtype=call.dtype)
    options = {"causal": call.causal, "window": call.window, "softcap": call.softcap}
    if call.mask is not None:
        shape = (call.batch, heads, call.L, call.S)[-MASK_AXES[call.mask] :]
        options["mask"] = spread(*shape, dtype=call.mask)
    if call.sinks:
        options["sinks"] = mx.zeros(heads)
    options |= {name: lengths(*[0] * call.batch) for name in call.lengths}
    record = gpu.attention(query, key, key, scale=0.25, batch_invariant=call.batch_invariant, **options)[2]
    return record.dispatches


def launches(dispatches):
    return [Launch(*dispatch[:4]) for dispatch in dispatches]


def check(call):
    dispatches = dispatches_of(call)
    assert launches(dispatches) == attention(call), call
    check_numbers(call, dispatches[0])
    assert all(dispatch.arguments.keys() == {4} for dispatch in dispatches[1:])
    for merge in dispatches[1:]:
        assert (merge.slots, merge.outputs) == ({0, 1, 2, 3}, {2, 3})
        assert merge.arguments[4] == dispatches[0].arguments[ARGUMENTS_SLOT]


def check_numbers(call, dispatch):
    """Every number in the kernel's arguments, and the slots that have a buffer."""
    assert (dispatch.outputs, dispatch.slots) == (OUTPUT_SLOTS, INPUT_SLOTS | OUTPUT_SLOTS)
    (slot,) = dispatch.arguments
    assert slot == ARGUMENTS_SLOT
    args = FastArguments.from_buffer_copy(dispatch.arguments[slot])
    heads, kv_heads = call.heads
    left, right = call.limits
    sizes = (call.N, heads, heads // kv_heads, call.L, call.S, call.E, left, right)
    names = ("N", "heads", "group", "L", "S", "E", "left", "right")
    assert tuple(getattr(args, name) for name in names) == sizes
    assert (args.scale, args.softcap) == (0.25, call.softcap or 0)
    assert args.keys_per_split == KEYS_PER_SPLIT
    for name in LENGTHS:
        given = name in call.lengths
        found = getattr(args, name)
        assert (found.given, found.stride) == (given, given and call.batch > 1), name


@pytest.mark.parametrize("seed", range(2))
def test_every_pair_of_options(seed):
    calls = [Call(**row) for row in covering(EDGES, seed)]
    assert len(calls) > 150
    for call in calls:
        check(call)


def test_every_number_of_rows_and_keys():
    for L in range(1, 131):
        check(Call(L, 40, 72, heads=(2, 1), batch=1))
    for S in (*range(500, 525), *range(1015, 1035), *range(2040, 2060)):
        check(Call(3, S, heads=(2, 1), batch=1, dtype=mx.bfloat16))


def test_every_head_size():
    for E in range(1, 257):
        check(Call(1 + E % 2 * 8, 20, E, heads=(3, 1), batch=1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("E", [1, 64, 128, 129, 256])
def test_the_flat_form(E, masked, causal):
    extension, device = gpu.modules()
    for L in (1, 8, 9, 31, 32, 33, 64, 65):
        query, key = mx.zeros((14, L, E)), mx.zeros((2, 40, E))
        mask = mx.zeros((14, L, 40)) if masked else None
        mx.eval(query, key, mask)
        output = extension.flash_attention(
            query, key, key, mask, 0.25, causal, num_kv_heads=2, num_heads=14, stream=device.gpu_stream()
        )
        (dispatch,) = gpu.evaluate(output).dispatches
        assert launches([dispatch]) == flat(14, L, 40, E, causal, masked)
        if E <= 128:
            args = ReadableArguments.from_buffer_copy(dispatch.arguments[ARGUMENTS_SLOT])
            found = tuple(getattr(args, name) for name in ("L", "S", "E", "heads", "group"))
            assert found == (L, 40, E, 14, 7)
            assert (args.scale, args.causal, args.mask_kind) == (0.25, causal, 2 * masked)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("bits", "group_size"), [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)])
def test_the_quantized_product(bits, group_size, dtype):
    extension, device = gpu.modules()
    for N in (1, 15, 16, 17, 63, 64, 65, 128, 129):
        weights = packed(N, 2 * group_size, bits=bits, group_size=group_size, dtype=dtype)
        for M in (1, 2, 7, 8, 9, 31, 32, 33, 64, 65):
            a = mx.zeros((M, 2 * group_size), dtype)
            mx.eval(a, weights.scales, weights.biases, weights.words)
            output = extension.quantized_matmul(
                *weights[:4], a, weights.words, True, stream=device.gpu_stream()
            )
            (dispatch,) = gpu.evaluate(output).dispatches
            assert launches([dispatch]) == product(M, N, bits, dtype)
            assert (dispatch.slots, dispatch.outputs) == ({0, 1, 2, 3, 4}, {4})
            shift = {32: 0, 64: 1, 128: 2}[group_size]
            numbers = (M, N, 2 * group_size, shift)
            assert dispatch.arguments == {5: b"".join(n.to_bytes(4, "little") for n in numbers)}
