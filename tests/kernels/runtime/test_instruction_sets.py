"""The instruction set in use is visible and can be forced by name; a wrong name is an error."""

import math
import os
from pathlib import Path

import mlx.core as mx
import pytest

from ...support import native
from ...support.attention.check import compare
from ...support.cases import DTYPE_IDS, DTYPES, qkv
from ...support.processes.child import run_python
from ...support.refusal import refused

# An instruction set that this machine lacks.
FOREIGN = "neon" if "avx2" in native.available_isas() else "avx2"


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("isa", native.available_isas())
@pytest.mark.parametrize(("L", "S"), [(70, 131), (1, 4096)])
def test_an_instruction_set_forced_in_a_call_is_the_one_that_runs(L, S, isa, dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    out, lse = native.attention(q, k, v, causal=True, isa=isa)
    mx.eval(out, lse)
    assert native.last_run()["isa"] == isa
    compare(out, lse, q, k, v, causal=True)


def test_the_list_ends_with_scalar():
    assert native.available_isas()[-1] == "scalar"
    assert len(set(native.available_isas())) == len(native.available_isas())


@pytest.mark.parametrize("name", ["avx1024", "", "AVX2", FOREIGN])
def test_an_unknown_or_unsupported_name_is_refused(name):
    with refused("isa"):
        native.attention(*qkv(), isa=name)


PROGRAM = """
import mlx.core as mx
from tiny_llm.attention import flash_attention
mx.set_default_device(mx.cpu)
x = mx.ones((2, 300, 16))
mx.eval(flash_attention(x, x, x))
import tiny_llm_ext
print(tiny_llm_ext.cpu_isa(), *tiny_llm_ext.cpu_threads())
"""


@pytest.fixture
def run_with(monkeypatch):
    """The instruction set and threads of a new process with these variables, after one call."""

    def run(**environment):
        for name in ("TINY_LLM_CPU_ISA", "TINY_LLM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return run_python("-c", PROGRAM)

    return run


@pytest.mark.parametrize("isa", native.available_isas())
def test_the_environment_forces_the_instruction_set(isa, run_with):
    run = run_with(TINY_LLM_CPU_ISA=isa)
    assert run.stdout.split()[:1] == [isa], run.stderr


@pytest.mark.parametrize("name", ["avx1024", "AVX2", FOREIGN])
def test_a_wrong_name_in_the_environment_is_an_error(name, run_with):
    run = run_with(TINY_LLM_CPU_ISA=name)
    assert run.returncode != 0
    assert f"TINY_LLM_CPU_ISA: got '{name}', expected one of" in run.stderr


@pytest.mark.parametrize(("given", "threads"), [("1", ["1", "1"]), ("3,2", ["3", "2"])])
def test_the_environment_sets_the_numbers_of_threads(given, threads, run_with):
    assert run_with(TINY_LLM_THREADS=given).stdout.split()[1:] == threads


def granted_cpus() -> list[float]:
    """The CPU quotas of the control groups of this process; folders as in tests/cpus_test.cpp."""
    groups = Path("/proc/self/cgroup")
    granted = []
    for line in groups.read_text().splitlines() if groups.exists() else []:
        number, controllers, path = line.split(":", 2)
        root = Path("/sys/fs/cgroup") / ("" if number == "0" else controllers)
        for group in (root, *(root / path.strip("/")).parents, root / path.strip("/")):
            if (group / "cpu.max").exists():
                quota, period = (group / "cpu.max").read_text().split()
            elif (group / "cpu.cfs_quota_us").exists():
                quota, period = ((group / f"cpu.cfs_{x}_us").read_text() for x in ("quota", "period"))
            else:
                continue
            if quota.strip() not in ("max", "-1"):
                granted.append(int(quota) / int(period))
    return granted


def core_of(cpu: int) -> str:
    """The CPUs that share its physical core."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings.read_text() if siblings.exists() else str(cpu)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or Path("/sys/devices/cpu_atom").exists(),
    reason="no affinity, or cores of two kinds",
)
def test_by_default_there_is_a_thread_for_each_core_of_the_process(run_with):
    mine = os.sched_getaffinity(0)
    cores = max(len({core_of(cpu) for cpu in mine}), min(len(mine), 2))
    assert int(run_with().stdout.split()[1]) == math.ceil(min(cores, *granted_cpus(), math.inf))


@pytest.mark.parametrize("value", ["0", "-1", "two", "1e9", "99999999999999999999"])
def test_a_wrong_number_of_threads_is_an_error(value, run_with):
    run = run_with(TINY_LLM_THREADS=value)
    assert run.returncode != 0
    assert "TINY_LLM_THREADS" in run.stderr
