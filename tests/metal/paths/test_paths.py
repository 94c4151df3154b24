"""Every option on every path of the host: the kernel is the expected one, and the result is attention."""

import json

import pytest

from ...support.processes.child import run_python
from ...support.processes.tools import need
from ..harness.toolchain import TOOLS
from ..host import gpu
from .crossing import FEW, MANY, cases, check

pytestmark = [
    pytest.mark.skipif(gpu.IS_REAL, reason="the limits of a real GPU are fixed"),
    pytest.mark.usefixtures("metal_device"),
]

PATHS = {"decode": (3, 40), "decode_split": (2, 600), "prefill": (33, 40)}

# In a process of its own: a process remembers which kernels its device cannot run.
REFUSING = """
import json
from tests.metal.host import gpu
from tests.metal.paths import crossing

extension, device = gpu.modules()
device.on_compile(lambda kernel, source, constants: 32 if kernel.startswith({refused!r}) else 1024)
cases = crossing.cases({sizes!r}, crossing.{factors})
for case in cases:
    crossing.check(case, {kernel!r})
print(json.dumps([crossing.expected_path(case, {kernel!r}) for case in cases]))
"""
# The kernels that the device refuses, L and S, and the path that remains.
REFUSALS = {
    "no decode": ("attention_decode", (3, 40), "prefill"),
    "no merge": ("attention_merge", (2, 600), "prefill"),
    "no prefill": ("attention_prefill", (33, 40), "decode"),
    "few rows, nothing fast": ("attention_", (3, 40), "readable"),
    "many rows, nothing fast": ("attention_", (33, 40), "readable"),
    "nothing": (("attention_", "flash_"), (3, 40), "reference"),
}


@pytest.mark.parametrize("kernel", PATHS)
def test_every_option_on_every_path(kernel):
    for case in cases(PATHS[kernel], FEW):
        check(case, kernel)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PATHS)
def test_every_pair_of_all_values_on_every_path(kernel):
    for case in cases(PATHS[kernel], MANY):
        check(case, kernel)


def test_with_batch_invariance_one_kernel_runs_all_lengths():
    for sizes in PATHS.values():
        for case in cases(sizes, FEW)[::6]:
            check(case, "prefill", batch_invariant=True)


def paths_where(refused, sizes, kernel, factors):
    need(*TOOLS["clang"])
    text = REFUSING.format(refused=refused, sizes=sizes, kernel=kernel, factors=factors)
    ended = run_python("-c", text)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


# Seconds, of some that are much like the others.
LONG = {"no prefill", "no merge", "many rows, nothing fast"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in REFUSALS]
)
def test_every_option_on_every_fallback(name):
    refused, sizes, kernel = REFUSALS[name]
    taken = paths_where(refused, sizes, kernel, "FEW")
    if kernel == "readable":
        assert set(taken) == {"reference", "metal.flash_attention_f32_e128"}
    else:
        assert len(taken) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSALS)
def test_every_pair_of_all_values_on_every_fallback(name):
    assert paths_where(*REFUSALS[name], "MANY")
