"""Memory that one layer frees is reused by the next, without a page fault for each of its pages."""

import os
import platform

import mlx.core as mx
import pytest

from ...support.processes.child import run_python

FAULTS = """
import ctypes
import resource
import mlx.core as mx
import tiny_llm_ext

PR_SET_THP_DISABLE = 41  # huge pages would have one fault for hundreds of pages
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
x, weight = mx.ones((2048, 1024)), mx.ones(1024)

def layers():
    mx.eval([tiny_llm_ext.rms_norm(x, weight, 1e-6, stream=mx.cpu) for _ in range(6)])

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(5):
    layers()
before = faults()
for _ in range(10):
    layers()
print(faults() - before)
"""

PAGES = 10 * 6 * 2048 * 1024 * mx.float32.size // os.sysconf("SC_PAGE_SIZE")
SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": "4096",
    "MALLOC_TRIM_THRESHOLD_": "4096",
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4096",
}

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc",
    reason="the thresholds are glibc's: nothing to test with another C library",
)


def faults() -> int:
    return int(run_python("-c", FAULTS).stdout)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


def test_freed_memory_is_kept():
    assert faults() < PAGES / 20


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_in_the_environment_win(name, monkeypatch):
    monkeypatch.setenv(name, SETTINGS[name])
    assert faults() > PAGES / 2
