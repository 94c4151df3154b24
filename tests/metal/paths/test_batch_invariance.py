"""With batch invariance, the bits of a row do not depend on the rest of the batch or on padding."""

import mlx.core as mx
import pytest

from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask
from ...support.tolerance import same_bits
from ..host import gpu

pytestmark = pytest.mark.usefixtures("metal_device")

OPTIONS = {
    "plain": {},
    "window": {"window": 50},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": normal(4)},
}


def run(*inputs, **options):
    out, lse, record = gpu.attention(*inputs, **options, causal=True, batch_invariant=True)
    assert record.reports == []
    return out, lse


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("rows", [1, 5, 8], ids=str)
def test_padding_of_rows_and_keys(rows, name, dtype):
    """A sequence alone, and in a batch with a longer one, where it is padded on the left or right."""
    query, key, value = qkv(batch=(1,), heads=4, L=rows, S=70, E=64, dtype=dtype)
    alone = run(query, key, value, **OPTIONS[name])
    for start, L, S in ((0, 12, 90), (0, rows, 600), (23, 40, 100)):
        others = qkv(batch=(2,), heads=4, L=L, S=S, E=64, dtype=dtype, seed=1)
        padded = [mx.array(x) for x in others]
        padded[0][1:, :, :rows] = query
        for x, own in zip(padded[1:], (key, value), strict=True):
            x[1:, :, start : start + 70] = own
        given = {"q_lens": lengths(L, rows), "kv_start": lengths(0, start), "kv_lens": lengths(S, 70)}
        out, lse = run(*padded, **OPTIONS[name], **given)
        assert same_bits((out[1:, :, :rows], lse[1:, :, :rows]), alone), (start, L, S)


@pytest.mark.parametrize("rows", [1, 8, 9, 33])
def test_the_bits_of_a_row_are_the_same_in_every_chunk(rows):
    query, key, value = qkv(batch=(1,), heads=4, L=40, S=600, E=64)
    mask = random_mask(600)
    out, lse = run(query, key, value, mask=mask)
    part = run(query[:, :, 40 - rows :], key, value, mask=mask)
    assert same_bits((out[:, :, 40 - rows :], lse[:, :, 40 - rows :]), part)


@pytest.mark.parametrize(("L", "S"), [(1, 40), (8, 600), (9, 40), (70, 600)])
def test_one_kernel_runs_all_lengths(L, S):
    inputs = qkv(heads=4, L=L, S=S, E=64)
    explanation = gpu.explain(*inputs, batch_invariant=True)
    assert explanation["path"] == "metal.attention_prefill_f32_e64"
    assert explanation["batch_invariant"]
    assert not gpu.explain(*inputs)["batch_invariant"]
