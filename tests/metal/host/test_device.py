"""What the host side does on a device that cannot run a kernel, and where it finds the kernels."""

import json
import shutil

import pytest

import build

from ...support.processes.child import run_python
from ...support.processes.tools import need
from ..harness.toolchain import TOOLS
from . import gpu

pytestmark = pytest.mark.skipif(gpu.IS_REAL, reason="a real GPU cannot be told what to lack")

PRELUDE = """
import json
import mlx.core as mx
from tests.metal.host import gpu
from tests.support.cases import qkv

extension, device = gpu.modules()

def allow(limits):
    def threads(kernel, source, constants):
        for word, answer in limits.items():
            if word in kernel:
                if isinstance(answer, str):
                    raise RuntimeError(answer)
                return answer
        return 1024
    device.on_compile(threads)

def tell(*inputs, **options):
    told = gpu.explain(*inputs, **options)
    print(json.dumps({name: told[name] for name in ("path", "fused", "reasons", "splits")}))
"""


@pytest.fixture(scope="module", autouse=True)
def built():
    gpu.modules()


def told_by(program: str) -> dict:
    """What a fresh process explains: pipelines are remembered for as long as a process lives."""
    ended = run_python("-c", PRELUDE + program)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_kernel_with_too_many_threads_gives_way_to_the_next():
    told = told_by("allow({'prefill': 96})\ntell(*qkv(L=40, E=64))")
    assert told["path"] == "metal.attention_decode_f32_e64"
    assert told["reasons"] == [
        "attention_prefill_f32_e64 needs 128 threads in a threadgroup, this GPU allows 96"
    ]


def test_the_kernel_to_read_is_a_way_out_too():
    told = told_by("allow({'attention_': 96, 'flash_attention': 1024})\ntell(*qkv(L=40, E=48))")
    assert told["path"] == "reference"
    told = told_by("allow({'flash_attention': 1024, 'attention_': 96})\ntell(*qkv(L=40, E=48))")
    assert told["path"] == "metal.flash_attention_f32_e128"
    assert len(told["reasons"]) == 2


def test_the_flat_form_goes_on_to_a_fast_kernel_and_says_why():
    """With its 1024 threads the kernel to read is the one that a GPU may not allow."""
    need(*TOOLS["clang"])
    told = told_by("""
allow({'flash_attention': 832})
query = qkv(batch=(1,), heads=2, L=40, E=64)[0][0]
flat = dict(num_kv_heads=2, num_heads=2, stream=device.gpu_stream())
told = extension.explain_flash_attention(query, query, query, **flat)
kernels = gpu.evaluate(extension.flash_attention(query, query, query, **flat)).kernels
print(json.dumps({"path": told["path"], "reasons": told["reasons"], "kernels": kernels}))
""")
    assert told["kernels"] == ["attention_prefill_f32_e64"]
    assert told["path"] == "metal.attention_prefill_f32_e64"
    assert told["reasons"] == [
        "flash_attention_f32_e128 needs 1024 threads in a threadgroup, this GPU allows 832"
    ]


def test_without_a_kernel_the_reference_takes_over_and_the_reasons_are_told():
    told = told_by("allow({'attention': 96})\ntell(*qkv(L=2, E=64, dtype=mx.float16))")
    assert (told["path"], told["fused"]) == ("reference", False)
    (reasons,) = told["reasons"]
    assert "decode_f16_e64 needs 256" in reasons
    assert "prefill_f16_e64 needs 128" in reasons


def test_a_text_that_the_compiler_refuses_is_a_reason_to_fall_back():
    told = told_by("allow({'attention': 'line 3: what is this?'})\ntell(*qkv(L=2, E=64))")
    assert told["path"] == "reference"
    assert "attention_decode_f32_e64 cannot be compiled here: " in told["reasons"][0]
    assert "line 3: what is this?" in told["reasons"][0]


def test_another_kernel_is_no_way_out_for_who_asks_for_batch_invariance():
    told = told_by("""
allow({'prefill': 96})
told = gpu.explain(*qkv(L=2, E=64), batch_invariant=True)
try:
    gpu.attention(*qkv(L=2, E=64), batch_invariant=True)
except RuntimeError as error:
    told["error"] = str(error)
print(json.dumps({name: told[name] for name in ("path", "reasons", "error")}))
""")
    reason = "attention_prefill_f32_e64 needs 128 threads in a threadgroup, this GPU allows 96"
    assert (told["path"], told["reasons"][0]) == ("reference", reason)
    assert told["error"] == f"flash_attention: no fused kernel that is batch invariant: {reason}"


def test_a_merge_that_cannot_run_rules_out_the_splits():
    told = told_by("allow({'merge': 96})\ntell(*qkv(L=2, S=1100, E=64))")
    assert told["path"] == "metal.attention_prefill_f32_e64"
    assert "attention_merge_f32 needs 128 threads" in told["reasons"][0]


@pytest.mark.parametrize(
    ("architecture", "splits"),
    [("applegpu_g13g", 3), ("applegpu_g13s", 5), ("applegpu_g14d", 9), ("applegpu_g99x", 3)],
)
def test_larger_gpus_split_finer(architecture, splits):
    told = told_by(f"device.set_architecture({architecture!r})\ntell(*qkv(L=1, S=1100, E=64))")
    assert told["splits"] == splits


def test_a_metallib_is_preferred_and_a_missing_folder_is_named(tmp_path):
    need(*TOOLS["clang"])
    text = (build.PACKAGE / "metal/attention.metal").read_text()
    (tmp_path / "tiny_llm_ext.metallib").write_text(text)
    program = f"""
extension.load_library(mx.gpu, {str(tmp_path)!r})
out, lse, notes = gpu.attention(*qkv(L=1, E=64))
print(json.dumps([notes.kernels, notes.reports]))
"""
    assert told_by(program) == [["attention_decode_f32_e64"], []]
    ended = run_python("-c", PRELUDE + f"extension.load_library(mx.gpu, {str(tmp_path / 'none')!r})")
    assert "no Metal kernels in" in ended.stderr


def test_an_incomplete_installation_is_a_reason(tmp_path):
    shutil.copytree(build.PACKAGE / "metal", tmp_path / "metal")
    (tmp_path / "metal/attention.metal").unlink()
    told = told_by(f"extension.load_library(mx.gpu, {str(tmp_path)!r})\ntell(*qkv(L=1, E=160))")
    assert told["path"] == "reference"
    assert "attention.metal, which this installation should have" in told["reasons"][0]
