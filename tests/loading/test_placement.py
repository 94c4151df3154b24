"""Memory for weights: each array in its place, as it was, and alive as long as anybody has it."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import pytest

import tiny_llm_ext

from ..support.processes.child import run_python
from ..support.processes.memory import address

ARRAYS = {
    "words": mx.arange(3 * 40, dtype=mx.uint32).reshape(3, 40),
    "halves": mx.arange(7).astype(mx.float16),
    "brain": (mx.arange(5 * 9) / 8).reshape(5, 9).astype(mx.bfloat16),
    "none": mx.zeros((0, 4)),
    "one": mx.array(2.5),
    "cube": mx.arange(2 * 3 * 4).reshape(2, 3, 4).astype(mx.float32),
}


def equal(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a, b))


def test_copies_outlive_the_memory_they_came_from() -> None:
    memory = tiny_llm_ext.WeightMemory([array.nbytes for array in ARRAYS.values()])
    copies = {name: memory.copy(array) for name, array in ARRAYS.items()}
    del memory
    for name, array in ARRAYS.items():
        assert equal(copies[name], array), name
    assert [address(copies[name]) % 64 for name in ("words", "halves", "brain", "cube")] == [0] * 4


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 5 * 2**20 + 3], ids=str)
def test_large_arrays_are_copied_and_read_in_parts(tmp_path: Path, size: int) -> None:
    path = tmp_path / "weights"
    x = (mx.arange(size, dtype=mx.uint32) * 2654435769 >> 24).astype(mx.uint8)
    path.write_bytes(b"head" + bytes(memoryview(x)))
    memory = tiny_llm_ext.WeightMemory([size, size])
    assert equal(memory.copy(x), x)
    with path.open("rb") as file:
        assert equal(memory.read(file.fileno(), 4, x.shape, mx.uint8), x)


IN_PARTS = """
import sys
import mlx.core as mx
import tiny_llm_ext

size = 5 * 2**20 + 3
memory = tiny_llm_ext.WeightMemory([size, size])
ones = mx.ones((size,), mx.uint8)
mx.eval(ones)
with open(sys.argv[1], "rb") as file:
    for work in (
        lambda: memory.copy(ones),
        lambda: memory.read(file.fileno(), 0, (size,), mx.uint8),
        lambda: tiny_llm_ext.zeros((size,), mx.uint8),
    ):
        tiny_llm_ext.start_region_log()
        work()
        print([(region["items"], region["threads"]) for region in tiny_llm_ext.end_region_log()])
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a single CPU has no use for a second thread")
def test_the_threads_share_a_large_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").write_bytes(bytes(6 * 2**20))
    monkeypatch.setenv("TINY_LLM_THREADS", "2")
    child = run_python("-c", IN_PARTS, str(tmp_path / "weights"))
    assert child.stdout.splitlines() == ["[(6, 2)]"] * 3, child.stderr


def test_what_is_not_dense_or_not_evaluated_becomes_so() -> None:
    x = mx.random.normal((6, 8))
    memory = tiny_llm_ext.WeightMemory([6 * 8 * 4, 6 * 4 * 4, 8 * 4])
    for array in (x.T, x[:, ::2], (x + 1)[2]):
        assert equal(memory.copy(array), array)


def test_arrays_can_be_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    x = mx.arange(24, dtype=mx.uint32).reshape(4, 6)
    path.write_bytes(b"head" + bytes(memoryview(x)))
    memory = tiny_llm_ext.WeightMemory([x.nbytes, 8])
    with path.open("rb") as file:
        assert equal(memory.read(file.fileno(), 4, x.shape, mx.uint32), x)
        assert equal(memory.read(file.fileno(), 12, (2,), mx.uint32), mx.array([2, 3], mx.uint32))


@pytest.mark.parametrize("begin", [8, 100])
@pytest.mark.parametrize("size", [16, 4 * 2**20])
def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path, begin: int, size: int) -> None:
    (tmp_path / "weights").write_bytes(bytes(size))
    memory = tiny_llm_ext.WeightMemory([size])
    with (
        (tmp_path / "weights").open("rb") as file,
        pytest.raises(RuntimeError, match="the file has become shorter"),
    ):
        memory.read(file.fileno(), begin, (size // 4,), mx.float32)


@pytest.mark.parametrize(
    "shape",
    [(33,), (-1,), (-2, -2), (0, -1), (2**31 - 1,) * 4],
    ids=["long", "negative", "both", "zero", "huge"],
)
def test_unsupported_shapes_are_refused(shape: tuple[int, ...]) -> None:
    memory = tiny_llm_ext.WeightMemory([64])
    with pytest.raises(ValueError, match=r"^WeightMemory: shape: got .*, expected \d+ bytes at most"):
        memory.read(0, 0, shape, mx.float32)


def test_more_numbers_than_it_was_made_for_are_refused() -> None:
    memory = tiny_llm_ext.WeightMemory([4, 4])
    with pytest.raises(ValueError, match=r"^WeightMemory: shape: got \(\), expected \d+ bytes at most"):  # noqa: PT012
        for _ in range(5):
            memory.copy(mx.array(1.0))


@pytest.mark.parametrize("sizes", [[64, -1], [2**63 - 1], [2**46, 2**46]], ids=str)
def test_impossible_sizes_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^WeightMemory: sizes: got -?\d+, expected numbers of bytes"):
        tiny_llm_ext.WeightMemory(sizes)


def test_threads_get_places_of_their_own() -> None:
    sources = [mx.full((16,), i) for i in range(2000)]
    mx.eval(sources)
    memory = tiny_llm_ext.WeightMemory([64] * len(sources))
    with ThreadPoolExecutor(4) as pool:
        copies = list(pool.map(memory.copy, sources))
    assert len({address(array) for array in copies}) == len(sources)
