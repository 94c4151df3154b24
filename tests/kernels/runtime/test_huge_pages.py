"""Huge pages are asked for where memory is large and stays: for weights, pages, and the largest outputs."""

import threading

import mlx.core as mx
import pytest

import tiny_llm_ext
from tiny_llm.cache.storage import PagedStorage
from tiny_llm.loading import load

from ...support.processes.child import run_python
from ...support.processes.memory import HUGE_PAGES, SMAPS, address, mappings, may_be_huge

MIB = 2**20
# A system without huge pages takes no advice about them.
ADVISED = HUGE_PAGES.exists()

pytestmark = [
    pytest.mark.skipif(not SMAPS.exists(), reason="advice and mappings of Linux: nothing to test elsewhere"),
    pytest.mark.usefixtures("on_the_cpu"),
]


def middle(array: mx.array) -> int:
    return address(array) + array.nbytes // 2


def test_weights_use_huge_pages():
    model = load("random:qwen2-0.5b").mlx_model
    assert may_be_huge(middle(model.model.embed_tokens.weight)) == ADVISED


def test_pages_of_keys_and_values_use_huge_pages():
    storage = PagedStorage(2, 64, 2, 128, 64, mx.float32)  # 4 MiB each
    arrays = [*storage.keys, *storage.values]
    assert {may_be_huge(middle(array)) for array in arrays} == {ADVISED}
    before = [address(array) for array in arrays]
    key = mx.ones((3, 2, 64))
    for layer in range(2):
        storage.write(layer, key, 2 * key, mx.array([0, 129, 8191]))
    arrays = [*storage.keys, *storage.values]
    mx.eval(arrays)
    assert [address(array) for array in arrays] == before
    assert [array.sum().item() for array in arrays] == [384, 384, 768, 768]
    storage.grow(96)
    assert {may_be_huge(middle(array)) for array in (*storage.keys, *storage.values)} == {ADVISED}
    assert [array.sum().item() for array in (*storage.keys, *storage.values)] == [384, 384, 768, 768]


OUTPUTS = """
import mlx.core as mx
import tiny_llm_ext
from tests.support.processes.memory import address, may_be_huge

for rows in (4096, 16 * 1024):  # 16 MiB, 64 MiB
    x = mx.ones((rows, 1024))
    normed = tiny_llm_ext.rms_norm(x, mx.ones(1024), 1e-6, stream=mx.cpu)
    mx.eval(normed)
    print(may_be_huge(address(normed) + normed.nbytes // 2))
"""


def test_only_outputs_with_a_mapping_of_their_own_use_huge_pages():
    """In a heap, advice would stay after the block, and each small block there could take a huge page."""
    child = run_python("-c", OUTPUTS)
    assert child.stdout.split() == ["False", f"{ADVISED}"], child.stderr


def test_bandwidth_is_measured_in_huge_pages():
    before = set(mappings())
    measured = threading.Thread(target=tiny_llm_ext.read_bandwidth, args=(256 * MIB, 2, 1.0))
    measured.start()
    seen: list[set[str]] = []
    while measured.is_alive():
        seen += [
            flags
            for mapping, flags in mappings().items()
            if len(mapping) > 200 * MIB and mapping not in before
        ]
    assert any("hg" in flags for flags in seen) == ADVISED


@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (5, 2**20 + 3)], ids=str)
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float32], ids=str)
def test_new_memory_is_zero(shape: tuple[int, ...], dtype: mx.Dtype):
    used = [mx.full(shape, 7, dtype) for _ in range(4)]
    mx.eval(used)
    del used  # whose memory may be used again
    zeros = tiny_llm_ext.zeros(shape, dtype)
    assert (zeros.shape, zeros.dtype) == (shape, dtype)
    assert not mx.any(zeros != 0).item()


@pytest.mark.parametrize("shape", [(-1,), (2, -3)], ids=str)
def test_negative_sizes_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"^zeros: shape: got \(.*\), expected sizes of at least 0$"):
        tiny_llm_ext.zeros(shape, mx.float32)


def test_more_than_there_is_is_refused():
    with pytest.raises(RuntimeError, match="cannot allocate"):
        tiny_llm_ext.zeros((2**31 - 1, 2**31 - 1), mx.float32)
