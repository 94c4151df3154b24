"""What a layer frees the next one gets, without asking the system for each of its pages anew."""

import os
import platform

import mlx.core as mx
import pytest

from ..support.child import run_python

FAULTS = """
import resource
import mlx.core as mx
import tiny_llm_ext

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

PAGES = 10 * 6 * 2048 * 1024 * mx.float32.size // 4096
GLIBC = platform.libc_ver()[0] == "glibc"


def faults() -> int:
    return int(run_python("-c", FAULTS).stdout)


@pytest.mark.skipif(not GLIBC, reason="other allocators have policies of their own")
def test_memory_that_was_freed_is_kept():
    assert faults() < PAGES / 20


@pytest.mark.skipif(not GLIBC, reason="other allocators have policies of their own")
def test_a_threshold_from_the_environment_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(os.sysconf("SC_PAGE_SIZE")))
    assert faults() > PAGES / 2
