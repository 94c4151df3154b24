"""Memory from the file to the first token: one copy of the weights, in the dtype of the run."""

import mlx.core as mx
import pytest

from tiny_llm.cli.loaders import LOADERS
from tiny_llm.course.dispatch import MODELS, dispatch_model
from tiny_llm.loading.weights.tree import convert_in_place, named_parts

from ..loading.folders import arrays_of, write_folder
from ..support.models.checkpoints import checkpoint, tokens
from ..support.processes.child import run_python

PROGRAM = """
import sys
import mlx.core as mx
from tiny_llm.cli.build_backend import build_stage, choose_flash
from tiny_llm.cli.loaders import LOADERS
from tiny_llm.generate import stream_generate
from tiny_llm.loading import load
from tiny_llm.loading.weights.tree import named_arrays, named_parts

mx.set_default_device(mx.cpu)
checkpoint, loader = load(sys.argv[1], offline=True), LOADERS[sys.argv[2]]
model = build_stage(checkpoint, loader, choose_flash(loader, None), mx.float32)
next(stream_generate(model, checkpoint.tokenizer, "Hello", max_tokens=2))
peak = mx.get_peak_memory()
arrays = [a for name, part in named_parts(checkpoint.mlx_model) for a in named_arrays(part, name).values()]
print(checkpoint.nbytes, sum(a.nbytes for a in arrays), max(a.nbytes for a in arrays), peak)
"""
SLACK = 4_000_000


@pytest.fixture(scope="module", params=[None, 4], ids=["dense", "packed"])
def folder(request, tmp_path_factory):
    weights = checkpoint(bits=request.param, intermediate_size=16384, layers=4)
    return write_folder(tmp_path_factory.mktemp("wide"), weights)


@pytest.mark.parametrize("loader", [loader.name for loader in LOADERS.values() if loader.has_cache])
def test_there_is_one_copy_of_the_weights(folder, loader):
    """Stored in bfloat16 and run in float32, in a process of its own."""
    result = run_python("-c", PROGRAM, str(folder), loader)
    assert result.stderr == ""
    stored, converted, largest, peak = map(int, result.stdout.split())
    assert converted > 1.1 * stored > 12_000_000
    assert peak <= converted + largest + SLACK


@pytest.mark.parametrize("bits", [None, 4], ids=["dense", "packed"])
@pytest.mark.parametrize("week", [1, 2])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
def test_a_converted_checkpoint_makes_the_same_model(bits, week, dtype):
    inputs, read = tokens(1, 9), MODELS["qwen2"][week].ops.load_weights

    def logits(weights):
        model = dispatch_model("a folder", weights, week, dtype=dtype)
        return model(inputs) if week == 1 else model(inputs, 0, model.create_kv_cache())

    expected = logits(checkpoint(bits=bits, tied=False))
    weights = checkpoint(bits=bits, tied=False)
    convert_in_place(weights, read, dtype)
    convert_in_place(weights, read, dtype)
    assert mx.array_equal(logits(weights), expected)
    assert [hasattr(part, "scales") for _, part in named_parts(weights)] == [
        hasattr(part, "scales") for _, part in named_parts(checkpoint(bits=bits, tied=False))
    ]


def test_building_a_model_does_not_change_the_checkpoint():
    weights = checkpoint(bits=None)
    before = arrays_of(weights)
    dispatch_model("a folder", weights, 2, dtype=mx.float32)
    after = arrays_of(weights)
    assert all(after[name] is array for name, array in before.items())
