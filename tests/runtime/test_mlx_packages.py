"""MLX that cannot be imported: one sentence where its build for CUDA has no driver, GPU or libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_llm.runtime.device import why_no_gpu
from tiny_llm.runtime.mlx_packages import explain_import_error, is_our_program

from ..support.processes.child import ROOT, run_python

NO_DRIVER = "libcuda.so.1: cannot open shared object file: No such file or directory"
NO_GPU = "cudaMallocManaged(&data, size) failed: no CUDA-capable device is detected"
NO_LIBRARY = "libnccl.so.2: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NO_DRIVER, "no NVIDIA driver was found: libcuda.so.1 cannot be loaded"),
        (NO_GPU, "no usable GPU was found: no CUDA-capable device is detected"),
        (NO_LIBRARY, "no library of NVIDIA's packages was found: libnccl.so.2 cannot be loaded"),
    ],
)
def test_a_build_for_cuda_that_cannot_be_imported_is_explained(text: str, reason: str) -> None:
    sentence = explain_import_error(text, ["mlx-cuda-13"])
    assert sentence is not None
    assert f"MLX's build for CUDA is installed (mlx-cuda-13), but {reason}." in sentence
    assert "`pdm run setup --cpu`" in sentence


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        (NO_DRIVER, ["mlx-cpu"]),
        (NO_DRIVER, []),
        ("No module named 'mlx'", ["mlx-cuda-13"]),
        ("undefined symbol: x", ["mlx-cuda-12"]),
    ],
)
def test_other_errors_keep_their_text(text: str, packages: list[str]) -> None:
    assert explain_import_error(text, packages) is None


@pytest.mark.parametrize(
    ("program", "command", "ours"),
    [
        ("main.py", ["python", "main.py"], True),
        ("-m", ["python", "-m", "tiny_llm", "info"], True),
        ("-m", ["python", "-m", "my_program"], False),
        ("-m", ["python", "-Im", "tiny_llm"], False),
        ("tools/course.py", ["python", "tools/course.py"], False),
        ("", ["python"], False),
        ("-c", ["python", "-c", "import tiny_llm"], False),
    ],
)
def test_only_our_programs_end_with_the_sentence(
    program: str, command: list[str], ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (ROOT, ROOT / "src") if not program.endswith(".py") else (ROOT,):
        monkeypatch.chdir(folder)
        assert is_our_program(program, command) == ours


def test_the_installed_program_is_one_of_ours(tmp_path: Path) -> None:
    program = tmp_path / "tiny-llm"
    program.touch()
    assert is_our_program(str(program), ["python", str(program)])


@pytest.mark.parametrize(
    ("packages", "reason"),
    [
        (["mlx-cpu"], "mlx-cpu uses no GPU; for one of NVIDIA's, run `pdm run setup --cuda`"),
        (["mlx-metal"], "MLX finds no GPU on this machine"),
        (["mlx-cpu", "mlx-cuda-13"], "MLX finds no GPU on this machine"),
        ([], "MLX finds no GPU on this machine"),
    ],
)
def test_the_reason_for_no_gpu_names_the_command_that_changes_it(packages: list[str], reason: str) -> None:
    assert why_no_gpu(packages) == reason


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with MLX's build for CUDA on a machine without a driver, to come first on the path."""
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").touch()
    (tmp_path / "mlx" / "core.py").write_text(f"raise ImportError({NO_DRIVER!r})")
    information = tmp_path / "mlx_cuda_13-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mlx-cuda-13\nVersion: 1.0\n")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [("-m", "tiny_llm", "info"), ("main.py",), ("batch-main.py",)],
    ids=["info", "main", "batch-main"],
)
def test_a_program_prints_one_line(broken: Path, command: tuple[str, ...]) -> None:
    result = run_python(*command, path=(broken,))
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tiny-llm: MLX's build for CUDA is installed")


def test_an_import_in_another_program_is_an_import_error(broken: Path) -> None:
    result = run_python("-c", "from tiny_llm import LLM", path=(broken,))
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: MLX's build for CUDA is installed")


def test_another_import_error_of_mlx_stays_as_it_is(broken: Path) -> None:
    (broken / "mlx" / "core.py").write_text("raise ImportError('undefined symbol: x')")
    result = run_python("-m", "tiny_llm", "info", path=(broken,))
    assert result.stderr.splitlines()[-1] == "ImportError: undefined symbol: x"
