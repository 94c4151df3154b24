"""Joined weights are in memory once: the parts of the checkpoint become views of them."""

from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.models import dispatch_model
from tiny_llm.models.joined_weights import join_layer
from tiny_llm.quantize import QuantizedWeights

from ..support.gpu import on_a_gpu
from ..support.models.checkpoints import checkpoint, each_family
from ..support.tolerance import same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

WIDE = 8192  # rows of gate and up, which are most of such a model
each_format = pytest.mark.parametrize("bits", [4, 8, None], ids=["4-bit", "8-bit", "dense"])


def parts_of(layer):
    attention, mlp = layer.self_attn, layer.mlp
    return (attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)


def arrays_of(part):
    """The arrays of a part by name."""
    return {name: array for name, array in vars(part).items() if isinstance(array, mx.array)}


def layer_of(**options):
    layer = checkpoint(layers=1, scale_dtype=mx.float32, **options).model.layers[0]
    mx.eval([list(arrays_of(part).values()) for group in parts_of(layer) for part in group])
    return layer


@each_format
@each_family
def test_the_parts_are_views_of_the_rows(family, bits):
    layer, same = layer_of(family=family, bits=bits), layer_of(family=family, bits=bits)
    joined = join_layer(layer)
    for whole, group, originals in zip(joined, parts_of(layer), parts_of(same), strict=True):
        names = arrays_of(originals[0]).keys()
        assert arrays_of(whole).keys() == names
        for name in names:
            together = getattr(whole, name)
            parts = [getattr(part, name) for part in group]
            assert same_bits(parts, [getattr(part, name) for part in originals])
            assert mx.array_equal(together, mx.concatenate(parts))
            for part in parts:
                assert np.shares_memory(np.asarray(part), np.asarray(together))
        if bits is not None:
            assert (whole.bits, whole.group_size) == (bits, 64)


def without_bias(layer):
    del layer.self_attn.k_proj.bias


def other_bits(layer):
    layer.self_attn.v_proj = layer_of(bits=8).self_attn.v_proj


def other_groups(layer):
    layer.mlp.up_proj = layer_of(group_size=32).mlp.up_proj


def other_mode(layer):
    layer.mlp.up_proj.mode = "mxfp4"


def dense_part(layer):
    layer.self_attn.q_proj = layer_of(bits=None).self_attn.q_proj


def other_dtype(layer):
    layer.mlp.gate_proj.scales = layer.mlp.gate_proj.scales.astype(mx.float16)


@pytest.mark.parametrize(
    "change", [without_bias, other_bits, other_groups, other_mode, dense_part, other_dtype]
)
def test_parts_of_different_formats_stay_as_they_are(change):
    layer = layer_of()
    change(layer)
    before = [dict(vars(part)) for group in parts_of(layer) for part in group]
    assert join_layer(layer) is None
    after = [dict(vars(part)) for group in parts_of(layer) for part in group]
    for one, other in zip(before, after, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name] is other[name] for name in one)


def test_the_mode_of_the_parts_is_kept():
    layer = layer_of()
    for part in (layer.mlp.gate_proj, layer.mlp.up_proj):
        part.mode = "affine"
    assert join_layer(layer).gate_up.mode == "affine"


def bytes_of(model: SimpleNamespace) -> int:
    return sum(
        array.nbytes
        for layer in model.model.layers
        for group in parts_of(layer)
        for part in group
        for array in arrays_of(part).values()
    )


@each_format
def test_the_weights_of_a_model_are_in_memory_once(bits):
    weights = checkpoint(layers=2, bits=bits, scale_dtype=mx.float32, intermediate_size=WIDE)
    layers = weights.model.layers
    mx.eval(
        [list(arrays_of(part).values()) for layer in layers for group in parts_of(layer) for part in group]
    )
    mx.clear_cache()
    before, size = mx.get_active_memory(), bytes_of(weights)
    mx.reset_peak_memory()
    with on_a_gpu():
        model = dispatch_model("a folder", weights, 2, dtype=mx.float32, enable_flash_attn=True)
        mx.synchronize()  # a GPU frees memory some time after it was used
    assert mx.get_active_memory() - before < size / 16
    # While a layer is joined, its parts are there twice.
    assert mx.get_peak_memory() - before < 0.75 * size
    for block, layer in zip(model.layers_inner, layers, strict=True):
        gate_up = block.gpu_weights.gate_up
        whole = gate_up.weight if isinstance(gate_up, QuantizedWeights) else gate_up
        mlp = block.mlp
        for ours, theirs in ((mlp.w_gate, layer.mlp.gate_proj), (mlp.w_up, layer.mlp.up_proj)):
            array = ours.weight if isinstance(ours, QuantizedWeights) else ours
            assert np.shares_memory(np.asarray(array), np.asarray(whole))
            assert np.shares_memory(np.asarray(theirs.weight), np.asarray(whole))
