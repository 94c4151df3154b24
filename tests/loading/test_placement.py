"""Memory for weights: each array in its place, as it was, and alive as long as anybody has it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import tiny_llm_ext
from tiny_llm.loading import load

ARRAYS = {
    "words": mx.arange(3 * 40, dtype=mx.uint32).reshape(3, 40),
    "halves": mx.arange(7).astype(mx.float16),
    "brain": (mx.arange(5 * 9) / 8).reshape(5, 9).astype(mx.bfloat16),
    "none": mx.zeros((0, 4)),
    "one": mx.array(2.5),
    "cube": mx.arange(2 * 3 * 4).reshape(2, 3, 4).astype(mx.float32),
}


def address(array: mx.array) -> int:
    return int(np.array(array.view(mx.uint8), copy=False).ctypes.data)


def equal(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(mx.array_equal(a, b))


def test_copies_outlive_the_memory_they_came_from() -> None:
    memory = tiny_llm_ext.WeightMemory([array.nbytes for array in ARRAYS.values()])
    copies = {name: memory.copy(array) for name, array in ARRAYS.items()}
    del memory
    for name, array in ARRAYS.items():
        assert equal(copies[name], array), name
    assert [address(copies[name]) % 64 for name in ("words", "halves", "brain", "cube")] == [0] * 4


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
def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path, begin: int) -> None:
    (tmp_path / "weights").write_bytes(bytes(16))
    memory = tiny_llm_ext.WeightMemory([16])
    with (
        (tmp_path / "weights").open("rb") as file,
        pytest.raises(RuntimeError, match="the file has become shorter"),
    ):
        memory.read(file.fileno(), begin, (4,), mx.float32)


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


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages here")
@pytest.mark.usefixtures("on_the_cpu")
def test_weights_use_huge_pages() -> None:
    """The flag of the mapping that holds most of a model; whether there are any is the system's affair."""
    model = load("random:qwen2-0.5b").mlx_model
    where = address(model.model.embed_tokens.weight) + 2**22
    flags: dict[bool, list[str]] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and ":" not in first:
            begin, end = (int(text, 16) for text in first.split("-"))
            inside = begin <= where < end
        elif first == "VmFlags:":
            flags.setdefault(inside, line.split())
    assert "hg" in flags[True]
