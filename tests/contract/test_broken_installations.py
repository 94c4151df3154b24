"""A missing extension, or one for another MLX, gives one clear error; importing prints nothing."""

import shutil

import pytest

from ..support.processes.child import ROOT, run_python


@pytest.fixture
def unbuilt(tmp_path):
    """A folder with a copy of the extension without its library, to come first on the path."""
    package = ROOT / "src" / "extensions" / "tiny_llm_ext"
    for parent in (tmp_path, tmp_path / "extensions"):
        shutil.copytree(package, parent / "tiny_llm_ext", ignore=shutil.ignore_patterns("*.so", "*.dylib"))
    return tmp_path


def test_without_a_build_importing_is_silent(unbuilt):
    result = run_python("-c", "from tiny_llm import *", path=(unbuilt,))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_without_a_build_the_first_call_names_the_command(unbuilt):
    program = "from tiny_llm import *; x = mx.ones((1, 4, 8)); flash_attention(x, x, x)"
    result = run_python("-c", program, path=(unbuilt,))
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("RuntimeError: ")
    assert "pdm run build-ext" in result.stderr.splitlines()[-1]


def test_without_a_build_layers_and_samplers_use_mlx(unbuilt):
    program = """
from tiny_llm import *
mx.set_default_device(mx.cpu)
x = mx.ones((1, 2, 3, 8))
table = QuantizedWeights(mx.ones((5, 2)), mx.zeros((5, 2)), 32, 4, mx.zeros((5, 8), dtype=mx.uint32))
norm, rope, embedding = RMSNorm(8, mx.ones(8)), RoPE(8, 16), quantize.QuantizedEmbedding(5, 64, table)
mx.eval(norm(x), rope(x), rope.heads_first(x, 3), embedding(mx.array([1])))
mx.eval(make_sampler(1.0, 0.5, 3)(x), make_sampler(0, None, None)(x))
"""
    result = run_python("-c", program, path=(unbuilt,))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_without_a_build_the_linear_layer_uses_mlx(unbuilt):
    program = "from tiny_llm import *; print(linear(mx.ones((1, 4)), mx.ones((2, 4)), mx.ones(2)).tolist())"
    result = run_python("-c", program, path=(unbuilt,))
    assert (result.returncode, result.stdout, result.stderr) == (0, "[[5.0, 5.0]]\n", "")


def test_without_a_build_info_names_the_command_and_fails(unbuilt):
    result = run_python("-m", "tiny_llm", "info", path=(unbuilt,))
    assert (result.returncode, result.stderr) == (1, "")
    assert "pdm run build-ext" in result.stdout


@pytest.mark.parametrize("command", [("-m", "tiny_llm", "info"), ("main.py",)], ids=["info", "main"])
@pytest.mark.parametrize("name", ["TINY_LLM_CPU_ISA", "TINY_LLM_THREADS"])
def test_a_wrong_environment_is_one_line(command, name, monkeypatch):
    monkeypatch.setenv(name, "x")
    result = run_python(*command)
    assert result.returncode == 1
    assert f"{name}: got 'x'" in result.stdout + result.stderr
    assert len(result.stderr.splitlines()) <= 1


def test_another_version_of_mlx_is_an_import_error():
    result = run_python("-c", "import mlx.core as mx; mx.__version__ = '0.1.0'; import tiny_llm_ext")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "0.1.0" in last
    assert "0.32.4" in last
