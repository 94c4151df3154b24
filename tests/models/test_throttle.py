"""A prompt on CUDA multiplies with dense weights, a few of which are in memory at a time.

CUDA is a setting here, and the CPU computes.
"""

import mlx.core as mx
import pytest

from tiny_llm.models import dispatch_model, gpu_block
from tiny_llm.models.throttle import GROUP, Throttle, current_throttle, one_graph, throttled
from tiny_llm.quantize import QuantizedWeights
from tiny_llm.runtime.gpu import as_on_gpu

from ..support.cases import normal
from ..support.models.checkpoints import checkpoint, tokens
from ..support.models.logits import assert_logits
from ..support.products.quantized import packed
from ..support.tolerance import same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

MB = 2**20


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch):
    monkeypatch.setattr(gpu_block, "is_cuda", lambda: True)


@pytest.fixture
def added(monkeypatch):
    """The bytes of each addition."""
    sizes, add = [], Throttle.add

    def recorded(throttle, results, held_bytes):
        sizes.append(held_bytes)
        add(throttle, results, held_bytes)

    monkeypatch.setattr(Throttle, "add", recorded)
    return sizes


def next_logits(bits, prompt):
    """Of the fused block and of the layers."""
    weights = checkpoint(layers=2, bits=bits, scale_dtype=mx.float32)
    layers = dispatch_model("a folder", weights, 2, dtype=mx.float32, enable_flash_attn=True)
    expected = layers.next_logits(prompt, 0, layers.create_kv_cache())
    mx.eval(expected)
    with as_on_gpu():
        ours = dispatch_model("a folder", weights, 2, dtype=mx.float32, enable_flash_attn=True)
        actual = ours.next_logits(prompt, 0, ours.create_kv_cache())
        mx.eval(actual)
    return actual, expected


@pytest.mark.parametrize(
    ("bits", "length", "additions"),
    [
        (4, 7, 0),  # packed
        (4, 8, 6),  # q, k and v in one, output, gate, up, down; of the last layer q, k and v
        (None, 511, 0),
        (None, 512, 2),  # layer by layer
    ],
)
def test_a_prompt_keeps_its_logits(bits, length, additions, added):
    actual, expected = next_logits(bits, tokens(1, length))
    assert_logits(actual, expected, 1e-5)
    assert len(added) == additions
    assert current_throttle() is None


def peak_of_products(count, size):
    """MB at the peak of products with packed weights, each of `size` MB when dense; and a result."""
    weights = QuantizedWeights(*packed(size * MB // 4 // 1024, 1024, group_size=64))
    x = normal(1, 8, 1024)
    mx.eval(x, weights.weight, weights.scales, weights.biases)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    with as_on_gpu():
        results = [gpu_block._multiply(x, weights) for _ in range(count)]
        mx.eval(results)
    return (mx.get_peak_memory() - before) / MB, results[-1]


def test_few_dense_matrices_are_in_memory():
    """One that ends and one that starts; MLX on the CPU dequantizes through arrays of the same size."""
    with throttled():
        peak, result = peak_of_products(12, GROUP // MB)
    assert peak < 5 * GROUP / MB
    all_at_once, same = peak_of_products(12, GROUP // MB)
    assert all_at_once > 11 * GROUP / MB
    assert same_bits(result, same)


def test_a_group_is_started_when_it_is_full():
    throttle, x = Throttle(), normal(4)
    for held, starts in ((GROUP // 2, False), (GROUP // 2, True), (GROUP - 1, False), (1, True)):
        before, x = throttle._running, x + 1
        throttle.add(x, held)
        assert (throttle._running is not before) == starts


def test_a_prompt_stays_one_graph_where_it_is_counted(added):
    with one_graph():
        actual, expected = next_logits(4, tokens(1, 20))
    assert_logits(actual, expected, 1e-5)
    assert added == []
