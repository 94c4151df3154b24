"""MLX's folder of compiled CUDA kernels: where it is, and when it is empty."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from tiny_llm.runtime.kernel_cache import cache_folder, count_kernels, kernel_cache, must_compile


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({}, "/tmp/mlx/0.32.4/ptx"),
        ({"TMP": "/b", "TMPDIR": "/a", "TEMP": "/c"}, "/a/mlx/0.32.4/ptx"),
        ({"TEMP": "/c", "TMP": "/b"}, "/b/mlx/0.32.4/ptx"),
        ({"TMPDIR": "/a", "MLX_PTX_CACHE_DIR": "/kept"}, "/kept"),
    ],
)
def test_the_folder_is_the_one_that_mlx_chooses(environment: dict[str, str], folder: str) -> None:
    assert cache_folder(environment, "0.32.4") == Path(folder)


def test_an_empty_variable_turns_the_cache_off() -> None:
    assert cache_folder({"MLX_PTX_CACHE_DIR": ""}, "0.32.4") is None


def test_modules_are_counted_also_those_with_long_names(tmp_path: Path) -> None:
    """MLX writes three files for each module; parts of a name beyond 245 characters become folders."""
    assert count_kernels(tmp_path / "missing") == 0
    for suffix in ("ptx", "txt", "cu"):
        (tmp_path / f"short.{suffix}").touch()
        (tmp_path / ("long" * 60)).mkdir(exist_ok=True)
        (tmp_path / ("long" * 60) / f"rest.{suffix}").touch()
    assert count_kernels(tmp_path) == 2


def test_kernels_must_be_compiled_while_the_folder_has_none(tmp_path: Path) -> None:
    assert not must_compile(None)
    assert must_compile(tmp_path / "missing")
    assert must_compile(tmp_path)
    (tmp_path / "copy.ptx").touch()
    assert not must_compile(tmp_path)


@pytest.mark.usefixtures("on_the_cpu")
def test_the_cpu_has_no_folder() -> None:
    assert mx.default_device() == mx.Device(mx.cpu)
    assert kernel_cache() is None
