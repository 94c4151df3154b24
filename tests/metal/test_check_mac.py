"""`pdm run check-mac` on the CPU, by a hidden option."""

import importlib.util
import json
import platform
import subprocess
import sys

import mlx.core as mx
import pytest

from benches import check_mac

from ..support.processes.child import ROOT

PROGRAM = ROOT / "tools/check_mac.py"


BROKEN_PARTS = """
def raises(device):
    "One that raises."
    raise ValueError("no such kernel")


def crashes(device):
    "One that ends its process."
    os.abort()


PARTS |= {"raises": raises, "crashes": crashes}


"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=300, check=False)


@pytest.fixture
def program():
    specification = importlib.util.spec_from_file_location("check_mac", PROGRAM)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.skipif(platform.system() == "Darwin", reason="this is a Mac")
def test_on_another_system_it_names_the_one_it_needs():
    ended = run()
    assert ended.returncode == 2
    assert ended.stderr == f"check-mac needs a Mac; this is {platform.system()}.\n"


def test_the_report_names_the_kernel_that_ran(tmp_path):
    output = tmp_path / "report.json"
    ended = run("--device", "cpu", "--part", "kernels", "--output", str(output))
    assert ended.returncode == 0, ended.stderr
    report = json.loads(output.read_text())
    assert list(report["parts"]) == ["kernels"]
    chosen = report["parts"]["kernels"]["chosen"]
    assert set(chosen.values()) == {"cpu.split"}
    text = output.with_suffix(".txt").read_text()
    assert all(f"  {case}: cpu.split\n" in text for case in chosen)


def test_the_other_parts_run_after_one_fails_or_crashes(tmp_path):
    """A copy of the program with two more parts: one raises, one kills its process."""
    copy = tmp_path / "check_mac.py"
    text = PROGRAM.read_text()
    for old, new in {
        "Path(__file__).resolve().parents[1]": f"Path({str(ROOT)!r})",
        "def in_a_child(": BROKEN_PARTS + "def in_a_child(",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    copy.write_text(text)
    output = tmp_path / "report.json"
    chosen = [word for part in ("raises", "crashes", "kernels") for word in ("--part", part)]
    command = [sys.executable, copy, "--device", "cpu", *chosen, "--output", output]
    ended = subprocess.run(command, text=True, capture_output=True, timeout=300, check=False)
    assert ended.returncode == 1, ended.stderr
    found = json.loads(output.read_text())["parts"]
    assert list(found) == ["kernels", "raises", "crashes"]
    assert found["raises"]["error"] == "ValueError: no such kernel"
    assert "Traceback" in found["raises"]["output"]
    assert found["crashes"]["error"] == "exit status -6"
    assert found["kernels"]["ok"]
    text = output.with_suffix(".txt").read_text()
    assert "raises: NOT OK" in text
    assert "ValueError: no such kernel" in text


def check_row(row, beside):
    assert 0 < row["error"] < row["allowed"] < 0.1
    assert row["seconds"].keys() == {"ours", beside}
    assert row["times_as_fast"] > 0


@pytest.mark.slow
def test_timed_results_are_checked():
    for row in (
        check_mac.attention_row(mx.float32, 4, 2, 64, 33, 40),
        check_mac.readable_row(4, 2, 64, 33, 40),
    ):
        check_row(row, "mx.fast")
        assert row["path"].startswith("cpu.")
    for count in (1, 9):
        check_row(check_mac.product_row(mx.float16, count, 128, 72), "mx.quantized_matmul")


def test_the_error_of_a_wrong_result_is_reported():
    zeros = mx.zeros((3, 4))
    row = check_mac.compare(lambda: zeros + 1, lambda: zeros, "another", zeros, 0.5)
    assert (row["error"], row["error_beside"], row["allowed"]) == (1, 0, 0.5)


def test_the_tests_that_it_runs_exist(program):
    files = [ROOT / f"tests/kernels/attention/test_{name}.py" for name in program.KERNEL_TESTS]
    assert [file.name for file in files if not file.is_file()] == []
