"""What runs on a device without kernels of ours: MLX's operation, or the reference, which is a fallback."""

import warnings
from functools import partial
from types import SimpleNamespace

import mlx.core as mx
import pytest

from tiny_llm import attention
from tiny_llm.runtime.extension import load_extension

from ...support import native
from ...support.attention.check import compare, compare_output
from ...support.attention.mlx import PATH, attend, explain
from ...support.cases import lengths, qkv

OTHERS = {
    "softcap": ({"softcap": 2.0}, "has no softcap"),
    "window": ({"window": 3, "causal": True}, "has no window"),
    "window to the right": ({"window": (-1, 3)}, "has no window"),
    "q_lens": ({"q_lens": lengths(3, 9)}, "has no lengths of sequences"),
    "kv_start": ({"kv_start": lengths(3, 0)}, "has no lengths of sequences"),
    "kv_lens": ({"kv_lens": lengths(3, 17)}, "has no lengths of sequences"),
}


@pytest.mark.parametrize(("options", "reason"), OTHERS.values(), ids=OTHERS)
def test_what_mlx_does_not_compute_takes_the_reference(options, reason):
    inputs = qkv(L=9, S=17)
    with pytest.raises(
        NotImplementedError, match=rf"^flash_attention: no fused kernel: .*; {PATH} {reason}; "
    ):
        attend(*inputs, **options)
    compare_output(attend(*inputs, **options, on_fallback="allow"), *inputs, **options)
    assert native.last_run()["path"] == "reference"
    explanation = explain(*inputs, **options)
    assert explanation["path"] == "reference"
    assert explanation["reasons"] == ("the call excludes our kernels", f"{PATH} {reason}")


@pytest.mark.parametrize(("L", "S"), [(0, 5), (5, 0)])
def test_empty_axes_take_the_reference(L, S):
    inputs = qkv(L=L, S=S)
    assert explain(*inputs)["reasons"][-1] == f"{PATH} takes no empty arrays"
    compare_output(attend(*inputs, on_fallback="allow"), *inputs)


def test_the_log_sum_exp_takes_the_reference():
    inputs = qkv(L=9, S=17)
    with pytest.raises(NotImplementedError, match=f"{PATH} has no log-sum-exp"):
        native.attention(*inputs, own_kernels=False, on_fallback="error")
    assert explain(*inputs, return_lse=True)["path"] == "reference"


def test_batch_invariance_is_refused():
    inputs = qkv(L=9, S=17)
    text = (
        "no fused kernel that is batch invariant: the call excludes our.*; batch_invariant=False and on_fall"
    )
    with pytest.raises(NotImplementedError, match=text):
        attend(*inputs, batch_invariant=True, on_fallback="allow")
    assert explain(*inputs, batch_invariant=True)["path"] == "reference"


def test_explanation():
    plan = explain(*qkv(L=9, S=17), causal=True)
    assert plan["path"] == plan["backward_path"] == PATH
    assert plan["reasons"] == ("the call excludes our kernels",)
    assert (plan["schedule"], plan["math"]) == ("mlx", "mlx")
    assert not plan["fused"]
    assert not plan["batch_invariant"]


@pytest.fixture
def without_own_kernels(monkeypatch):
    """`flash_attention` and its `explain` route as on a GPU without kernels of ours."""
    extension = load_extension()
    routed = {
        name: partial(getattr(extension, name), own_kernels=False)
        for name in ("attention", "explain_attention")
    }
    monkeypatch.setattr(attention, "load_extension", lambda: SimpleNamespace(**routed))


@pytest.mark.usefixtures("without_own_kernels")
def test_flash_attention_takes_the_operation_that_explain_names():
    inputs = qkv(L=9, S=17)
    assert attention.explain(attention.flash_attention, *inputs, mask="causal").path == PATH
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = attention.flash_attention(*inputs, mask="causal")
    assert native.last_run()["path"] == PATH
    compare_output(out, *inputs, mask="causal")
    scale = mx.array(0.25)
    compare_output(attention.flash_attention(*inputs, scale), *inputs, scale=0.25)
    with pytest.raises(NotImplementedError, match="scale"):
        mx.grad(lambda scale: attention.flash_attention(*inputs, scale).sum())(scale)


@pytest.mark.usefixtures("without_own_kernels")
def test_only_the_reference_is_a_fallback():
    inputs = qkv(L=9, S=17)
    plan = attention.explain(attention.flash_attention, *inputs, return_lse=True)
    assert plan.path == "reference"
    with pytest.warns(UserWarning, match="falling back to attention_reference.* has no log-sum-exp"):
        out, lse = attention.flash_attention(*inputs, return_lse=True)
    compare(out, lse, *inputs)
    with pytest.raises(NotImplementedError, match="has no log-sum-exp"):
        attention.flash_attention(*inputs, return_lse=True, on_fallback="error")
