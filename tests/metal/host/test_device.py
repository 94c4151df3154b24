"""The host side on a device that cannot run some kernels, and where it finds the kernels."""

import json
import shutil

import pytest

import build

from ...support.processes.child import run_python
from ...support.processes.tools import need
from ..harness.toolchain import TOOLS
from . import gpu

pytestmark = [
    pytest.mark.skipif(gpu.IS_REAL, reason="the limits of a real GPU are fixed"),
    pytest.mark.usefixtures("metal_device"),
]

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

def print_explanation(*inputs, **options):
    explanation = gpu.explain(*inputs, **options)
    print(json.dumps({name: explanation[name] for name in ("path", "fused", "reasons", "splits")}))
"""


def output_of(program: str) -> dict:
    """The JSON that a fresh process prints: a process keeps its pipelines for its whole life."""
    ended = run_python("-c", PRELUDE + program)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_kernel_with_too_many_threads_is_replaced_by_the_next():
    explanation = output_of("allow({'prefill': 96})\nprint_explanation(*qkv(L=40, E=64))")
    assert explanation["path"] == "metal.attention_decode_f32_e64"
    assert explanation["reasons"] == [
        "attention_prefill_f32_e64 needs 128 threads in a threadgroup, this GPU allows 96"
    ]


def test_what_a_pipeline_lacks_is_not_what_others_of_its_kernel_lack():
    """The features of a call are constants of its pipeline: one may need more registers than another."""
    explanations = output_of("""
device.on_compile(lambda kernel, source, constants: 96 if "prefill" in kernel and constants[0] else 1024)
inputs, mask = qkv(L=40, E=64), mx.ones((40, 40), mx.bool_)
calls = [{"mask": mask}, {}, {"mask": mask}, {"causal": True}]
print(json.dumps([gpu.explain(*inputs, **options)["path"] for options in calls]))
""")
    decode, prefill = "metal.attention_decode_f32_e64", "metal.attention_prefill_f32_e64"
    assert explanations == [decode, prefill, decode, prefill]


def test_the_readable_kernel_is_a_fallback():
    explanation = output_of(
        "allow({'attention_': 96, 'flash_attention': 1024})\nprint_explanation(*qkv(L=40, E=48))"
    )
    assert explanation["path"] == "reference"
    explanation = output_of(
        "allow({'flash_attention': 1024, 'attention_': 96})\nprint_explanation(*qkv(L=40, E=48))"
    )
    assert explanation["path"] == "metal.flash_attention_f32_e128"
    assert len(explanation["reasons"]) == 2


def test_the_flat_form_falls_back_to_a_fast_kernel_with_a_reason():
    """The readable kernel needs 1024 threads, which some GPUs do not allow."""
    need(*TOOLS["clang"])
    explanation = output_of("""
allow({'flash_attention': 832})
query = qkv(batch=(1,), heads=2, L=40, E=64)[0][0]
flat = dict(num_kv_heads=2, num_heads=2, stream=device.gpu_stream())
explanation = extension.explain_flash_attention(query, query, query, **flat)
kernels = gpu.evaluate(extension.flash_attention(query, query, query, **flat)).kernels
print(json.dumps({"path": explanation["path"], "reasons": explanation["reasons"], "kernels": kernels}))
""")
    assert explanation["kernels"] == ["attention_prefill_f32_e64"]
    assert explanation["path"] == "metal.attention_prefill_f32_e64"
    assert explanation["reasons"] == [
        "flash_attention_f32_e128 needs 1024 threads in a threadgroup, this GPU allows 832"
    ]


def test_without_a_kernel_the_reference_runs_and_the_reasons_are_explained():
    explanation = output_of("allow({'attention': 96})\nprint_explanation(*qkv(L=2, E=64, dtype=mx.float16))")
    assert (explanation["path"], explanation["fused"]) == ("reference", False)
    reasons, _ = explanation["reasons"]
    assert "decode_f16_e64 needs 256" in reasons
    assert "prefill_f16_e64 needs 128" in reasons


def test_a_compile_error_is_a_reason_to_fall_back():
    explanation = output_of(
        "allow({'attention': 'line 3: what is this?'})\nprint_explanation(*qkv(L=2, E=64))"
    )
    assert explanation["path"] == "reference"
    assert "attention_decode_f32_e64 cannot be compiled here: " in explanation["reasons"][0]
    assert "line 3: what is this?" in explanation["reasons"][0]


def test_batch_invariance_has_no_fallback_to_another_kernel():
    explanation = output_of("""
allow({'prefill': 96})
explanation = gpu.explain(*qkv(L=2, E=64), batch_invariant=True)
try:
    gpu.attention(*qkv(L=2, E=64), batch_invariant=True)
except RuntimeError as error:
    explanation["error"] = str(error)
print(json.dumps({name: explanation[name] for name in ("path", "reasons", "error")}))
""")
    reason = "attention_prefill_f32_e64 needs 128 threads in a threadgroup, this GPU allows 96"
    assert (explanation["path"], explanation["reasons"][0]) == ("reference", reason)
    error = f"flash_attention: no fused kernel that is batch invariant: {reason}; batch_invariant=False and"
    assert explanation["error"].startswith(error)


def test_without_the_merge_kernel_there_are_no_splits():
    explanation = output_of("allow({'merge': 96})\nprint_explanation(*qkv(L=2, S=1100, E=64))")
    assert explanation["path"] == "metal.attention_prefill_f32_e64"
    assert "attention_merge_f32 needs 128 threads" in explanation["reasons"][0]


@pytest.mark.parametrize(
    ("architecture", "splits"),
    [("applegpu_g13g", 3), ("applegpu_g13s", 5), ("applegpu_g14d", 9), ("applegpu_g99x", 3)],
)
def test_larger_gpus_use_more_splits(architecture, splits):
    explanation = output_of(
        f"device.set_architecture({architecture!r})\nprint_explanation(*qkv(L=1, S=1100, E=64))"
    )
    assert explanation["splits"] == splits


def test_a_metallib_is_preferred_and_a_missing_folder_is_named(tmp_path):
    need(*TOOLS["clang"])
    text = (build.PACKAGE / "metal/attention.metal").read_text()
    (tmp_path / "tiny_llm_ext.metallib").write_text(text)
    program = f"""
extension.load_library(mx.gpu, {str(tmp_path)!r})
out, lse, record = gpu.attention(*qkv(L=1, E=64))
print(json.dumps([record.kernels, record.reports]))
"""
    assert output_of(program) == [["attention_decode_f32_e64"], []]
    ended = run_python("-c", PRELUDE + f"extension.load_library(mx.gpu, {str(tmp_path / 'none')!r})")
    assert "no Metal kernels in" in ended.stderr


def test_a_missing_source_file_is_a_reason_to_fall_back(tmp_path):
    shutil.copytree(build.PACKAGE / "metal", tmp_path / "metal")
    (tmp_path / "metal/attention.metal").unlink()
    explanation = output_of(
        f"extension.load_library(mx.gpu, {str(tmp_path)!r})\nprint_explanation(*qkv(L=1, E=160))"
    )
    assert explanation["path"] == "reference"
    assert "attention.metal, which this installation should have" in explanation["reasons"][0]
