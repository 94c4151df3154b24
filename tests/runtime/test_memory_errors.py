"""MLX's errors about memory become one exception and one sentence; other errors stay as they are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm import OutOfMemoryError, TinyLlmError
from tiny_llm.cli.exit_codes import FAILED, exit_code_of
from tiny_llm.runtime.device import on_device
from tiny_llm.runtime.memory import memory_errors, out_of_memory

GPU = {"name": "NVIDIA H100", "memory_bytes": 85_000_000_000}
METAL = "[METAL] Command buffer execution failed: Insufficient Memory"
# Texts that MLX 0.32 writes, from its sources.
TEXTS = {
    "[malloc] Unable to allocate 12345678901 bytes.": 12345678901,
    "[metal::malloc] Attempting to allocate 40000000000 bytes which is greater than the maximum allowed "
    "buffer size of 30000000000 bytes.": 40000000000,
    "cudaMallocAsync(&data, size, stream) failed: out of memory": None,
    "cudaMallocManaged(&data, size) failed: out of memory": None,
    "cuLaunchKernelEx(&config, func, params, nullptr) failed: out of memory": None,
    "cublasLtCreate(&storage.handle) failed with code: 3.": None,
    f"{METAL} (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory).": None,
}


@pytest.mark.parametrize(("text", "requested"), TEXTS.items())
def test_a_text_about_memory_is_recognised(text: str, requested: int | None) -> None:
    error = out_of_memory(text, GPU)
    assert error is not None
    assert (error.requested, error.device, error.memory) == (requested, "NVIDIA H100", 85_000_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "cudaMallocAsync(&data, size, stream) failed: an illegal memory access was encountered",
        "cublasLtMatmul(handle) failed with code: 13.",
        f"{METAL.replace('Insufficient Memory', 'Caused GPU Timeout Error')}.",
        "[reshape] Cannot reshape array of size 4 into shape (3).",
    ],
)
def test_other_texts_are_not(text: str) -> None:
    assert out_of_memory(text, GPU) is None


def test_the_sentence_names_what_was_asked_the_memory_and_what_to_try() -> None:
    whole = OutOfMemoryError(12_345_678_901, "NVIDIA H100", 85_000_000_000)
    assert whole.problem == "out of memory on NVIDIA H100 with 85.0 GB: no room for an array of 12.35 GB"
    assert str(whole).startswith(f"{whole.problem}. ")
    assert "smaller model" in str(whole)
    assert OutOfMemoryError().problem == "out of memory on this device"


def test_it_is_an_error_of_this_library_and_pythons() -> None:
    assert issubclass(OutOfMemoryError, TinyLlmError)
    assert issubclass(OutOfMemoryError, MemoryError)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_it_survives_a_copy(copied: Callable[[Any], Any]) -> None:
    error = copied(OutOfMemoryError(1, "a GPU", 2))
    assert (error.requested, error.device, error.memory) == (1, "a GPU", 2)


@pytest.mark.parametrize("block", [memory_errors, lambda: on_device("cpu")], ids=["block", "device"])
def test_a_block_raises_it_in_the_place_of_mlx_s_error(block: Callable[[], Any]) -> None:
    with pytest.raises(OutOfMemoryError) as caught, block():
        raise RuntimeError("[malloc] Unable to allocate 1000 bytes.")
    assert caught.value.requested == 1000
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ValueError, match="reshape"), block():
        mx.zeros(4).reshape(3)
    with pytest.raises(RuntimeError, match="something else"), block():
        raise RuntimeError("something else")


def test_a_command_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise RuntimeError("[malloc] Unable to allocate 2000000000 bytes.")

    assert exit_code_of("program", run) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("program: out of memory on ")
    assert "no room for an array of 2.00 GB" in line
    assert "--max-tokens" in line


def test_a_stream_in_a_block_still_ends() -> None:
    """StopIteration passes through the block."""
    with pytest.raises(StopIteration), on_device("cpu"):
        next(iter([]))
