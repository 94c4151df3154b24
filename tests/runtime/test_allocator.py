"""Memory that was freed goes back to the system."""

import platform

import pytest

from ..support.processes.child import run_python

BURST = """
import re
from tiny_llm.runtime.memory import return_freed_memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) >> 10

before = resident()
kept, burst = [], []
for _ in range(1000):  # a small block behind each large one keeps the heap from shrinking at its end
    burst.append(bytearray(100_000))
    kept.append(bytearray(1000))
burst.clear()
after_burst = resident()
return_freed_memory()
print(before, after_burst, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such function")
def test_a_burst_does_not_stay():
    result = run_python("-c", BURST)
    assert result.returncode == 0, result.stderr
    before, after_burst, now = map(int, result.stdout.split())
    assert after_burst > before + 90
    assert now < before + 20
