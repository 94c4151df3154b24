"""Comparison of an attention layer with a reference on the cases in which such layers go wrong."""

from collections.abc import Iterator
from copy import deepcopy
from math import log
from typing import Any, NamedTuple

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..checks.types import check_type
from ..errors import ArgumentError, TinyLlmError
from ..runtime.gpu import computes_on_gpu
from .base import BaseAttention
from .memory import MB, peak_of
from .naive import NaiveAttention
from .tiled import TiledAttention

# Largest allowed error, relative to the largest number expected; twice the reference's own error if larger.
OUTPUT = {mx.float32: 1e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}
LARGEST_OWN_ERROR = 0.1  # beyond it, the reference proves nothing
GRADIENT = 2e-5
Parameters = dict[str, Any]  # arrays in dictionaries, as of `Module.parameters`
PEAK_TOKENS = (256, 1024)
EXTRA_POWER = 0.4  # 0 for linear memory; 1 for scores, with large heads a little less at these lengths
LENGTHS = (0, 1, 15, 16, 17, 31, 33, 64, 65, 129, 200)
BATCH, TOKENS = 2, 70


class ValidationError(TinyLlmError, AssertionError):
    """A layer whose results differ from the reference's."""


class Outcome(NamedTuple):
    case: str
    error: float
    allowed: float


def validate_attention(
    layer: BaseAttention, reference: type[BaseAttention] = NaiveAttention
) -> dict[str, float]:
    """Compare a layer with a reference that has the same weights -> the largest relative error of each check.

    Checks: lengths around tiles, 16-bit types, scores beyond float16, x in other layouts, gradients with
    respect to x and each parameter, and memory that is linear in the length, as `get_memory_usage` says and,
    on the CPU, as MLX measures it (a GPU has no kernels for gradients); if the layer takes masks, also masks
    of each shape and tokens that see nothing. A check that fails is a ValidationError.

    The layer has `qkv_proj`, or `q_proj`, `k_proj` and `v_proj`, and `visible` says which keys it shows.
    Sizes of heads and groups are those of the layer: call it for several.
    """
    check_type("validate_attention", "layer", layer, BaseAttention, "a BaseAttention")
    pair = _Pair(layer, reference)
    checks = {
        "lengths": _lengths(pair),
        "dtypes": _dtypes(pair),
        "large values": _large_values(pair),
        "layouts": _layouts(pair),
        "gradients": _gradients(pair),
    }
    if isinstance(layer, TiledAttention):
        checks["memory"] = _memory(pair)
    if layer.takes_masks:
        checks["masks"] = _masks(pair)
        checks["hidden tokens"] = _hidden_tokens(pair)
    errors = {}
    for name, outcomes in checks.items():
        errors[name] = 0.0
        for case, error, allowed in outcomes:
            if not error <= allowed:
                problem = f"{name}: {case}: error {error:.3g}, allowed {allowed:.3g}"
                raise ValidationError(f"validate_attention: {layer.name}: {problem}")
            errors[name] = max(errors[name], error)
    return errors


class _Pair:
    """A copy of the layer, and a reference with the same weights."""

    def __init__(self, layer: BaseAttention, reference: type[BaseAttention]):
        self.layer = deepcopy(layer)
        self.layer.eval()
        self.parameters = _cast(self.layer.parameters(), mx.float32)  # type: ignore[no-untyped-call]
        bias = "bias" in self.layer.out_proj
        self.twin = reference(layer.embed_dim, layer.num_heads, bias=bias)
        self.twin.eval()
        self.key = mx.random.key(0)

    def x(self, tokens: int = TOKENS, dtype: mx.Dtype = mx.float32) -> mx.array:
        x = mx.random.normal((BATCH, tokens, self.layer.embed_dim), key=self.key)
        return x.astype(dtype)

    def run(self, parameters: Parameters, x: mx.array, mask: mx.array | None = None) -> mx.array:
        self.layer.update(parameters)
        return self.layer(x, mask)[0]

    def run_twin(self, parameters: Parameters, x: mx.array, mask: mx.array | None = None) -> mx.array:
        self.twin.update(_dense(self.layer, parameters))
        visible = self.layer.visible(x.shape[1])
        if mask is None:
            mask = visible
        elif mask.dtype == mx.bool_:
            mask = (mask[:, None] if mask.ndim == 3 else mask) & visible
        else:
            mask = mx.where(visible, mask[:, None] if mask.ndim == 3 else mask, -mx.inf)
        return self.twin(x, mask)[0]

    def compare(self, case: str, x: mx.array, mask: mx.array | None = None) -> Outcome:
        """In the dtype of x, with a reference in float32 on the same rounded numbers."""
        rounded = _cast(self.parameters, x.dtype)
        exact = self.run_twin(_cast(rounded, mx.float32), x.astype(mx.float32), mask)
        error = _error(self.run(rounded, x, mask), exact)
        own = 0.0 if x.dtype == mx.float32 else _error(self.run_twin(rounded, x, mask), exact)
        return Outcome(case, error, max(OUTPUT[x.dtype], 2 * min(own, LARGEST_OWN_ERROR)))


def _lengths(pair: _Pair) -> Iterator[Outcome]:
    for tokens in LENGTHS:
        yield pair.compare(f"{tokens} tokens", pair.x(tokens))


def _dtypes(pair: _Pair) -> Iterator[Outcome]:
    for dtype in (mx.float16, mx.bfloat16):
        yield pair.compare(str(dtype), pair.x(dtype=dtype))


def _large_values(pair: _Pair) -> Iterator[Outcome]:
    """Products of query and key beyond float16: only that the output is finite is certain."""
    out = pair.run(_cast(pair.parameters, mx.float16), 400 * pair.x(dtype=mx.float16))
    yield Outcome("float16", 0.0 if mx.isfinite(out).all() else mx.inf, 0.0)


def _layouts(pair: _Pair) -> Iterator[Outcome]:
    x = pair.x()
    yield pair.compare("tokens in the outer axis", mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1))
    yield pair.compare("one sequence, repeated", mx.broadcast_to(x[:1], x.shape))


def _gradients(pair: _Pair) -> Iterator[Outcome]:
    x = pair.x()
    weights = mx.random.normal(x.shape, key=pair.key)

    def gradients(run: Any) -> dict[str, mx.array]:
        of_parameters, of_x = mx.grad(lambda *inputs: (run(*inputs) * weights).sum(), (0, 1))(
            pair.parameters, x
        )
        return {"x": of_x, **_flat(of_parameters)}

    expected = gradients(pair.run_twin)
    # The gradient of the keys' bias is 0 up to rounding, since it moves all scores of a row alike.
    size = {name: max(_size(want), _size(expected["x"])) for name, want in expected.items()}
    for name, got in gradients(pair.run).items():
        yield Outcome(name, _error(got, expected[name], size[name]), GRADIENT)


def _masks(pair: _Pair) -> Iterator[Outcome]:
    x, heads = pair.x(), pair.layer.num_heads
    for shape in (
        (TOKENS, TOKENS),
        (BATCH, TOKENS, TOKENS),
        (1, 1, 1, TOKENS),
        (BATCH, 1, 1, TOKENS),
        (BATCH, 1, TOKENS, TOKENS),
        (BATCH, heads, TOKENS, TOKENS),
    ):
        numbers = mx.random.normal(shape, key=pair.key)
        yield pair.compare(f"bool mask {shape}", x, numbers > 0)
        yield pair.compare(f"float mask {shape}", x, mx.where(numbers > 1, -mx.inf, numbers))
    try:
        pair.layer(x, mx.zeros((TOKENS, TOKENS), mx.int32))
    except ValueError:
        return
    yield Outcome("an int mask is not refused", mx.inf, 0.0)


def _hidden_tokens(pair: _Pair) -> Iterator[Outcome]:
    visible = (mx.arange(TOKENS) % 3 > 0)[:, None] & mx.ones((TOKENS, TOKENS), mx.bool_)
    yield pair.compare("some see nothing", pair.x(), visible)
    yield pair.compare("all see nothing", pair.x(), mx.full((1, 1, 1, TOKENS), -mx.inf))


def _memory(pair: _Pair) -> Iterator[Outcome]:
    """What a layer says that a gradient saves doubles with the tokens; a gradient's peak is linear, too."""
    small, large = (pair.layer.get_memory_usage(1, n)["saved_for_backward_mb"] for n in (4096, 8192))
    yield Outcome(f"saved {small:.3g} and {large:.3g} MB", abs(large / small - 2), 0.1)
    if computes_on_gpu():
        return
    few, many = PEAK_TOKENS
    small, large = (_peak_of_gradient(pair, tokens) / MB for tokens in PEAK_TOKENS)
    case = f"peaks of {small:.3g} and {large:.3g} MB for {few} and {many} tokens, a power of the length"
    yield Outcome(case, log(large / small, many / few) - 1, EXTRA_POWER)


def _peak_of_gradient(pair: _Pair, tokens: int) -> int:
    """In bytes, without the gradients of the parameters, whose size does not depend on the length."""
    x = pair.x(tokens)[:1]
    gradient = mx.grad(lambda parameters, x: pair.run(parameters, x).square().sum(), (0, 1))
    mx.eval(x, pair.parameters)
    return peak_of(lambda: gradient(pair.parameters, x)) - sum(
        x.nbytes for x in _flat(pair.parameters).values()
    )


def _dense(layer: BaseAttention, parameters: Parameters) -> Parameters:
    """The parameters of a layer with qkv_proj; heads of keys are repeated."""
    if "qkv_proj" in parameters:
        return parameters
    if not {"q_proj", "k_proj", "v_proj"} <= parameters.keys():
        expected = "qkv_proj, or q_proj, k_proj and v_proj"
        raise ArgumentError("validate_attention", "layer", ", ".join(parameters), expected)
    repeats = layer.num_heads // layer.num_heads_of_keys

    def repeat(x: mx.array) -> mx.array:
        return mx.flatten(mx.repeat(mx.unflatten(x, 0, (-1, layer.head_dim)), repeats, axis=0), 0, 1)

    q, k, v = (parameters[name] for name in ("q_proj", "k_proj", "v_proj"))
    joined = {name: mx.concatenate([q[name], repeat(k[name]), repeat(v[name])]) for name in q}
    return {"qkv_proj": joined, "out_proj": parameters["out_proj"]}


def _cast(parameters: Parameters, dtype: mx.Dtype) -> Parameters:
    cast: Parameters = {}
    for name, x in parameters.items():
        if isinstance(x, mx.array) and not mx.issubdtype(x.dtype, mx.floating):
            got = f"a parameter {name} of {dtype_name(x.dtype)}"
            raise ArgumentError("validate_attention", "layer", got, "floating point numbers, not quantized")
        cast[name] = x.astype(dtype) if isinstance(x, mx.array) else _cast(x, dtype)
    return cast


def _flat(parameters: Parameters, prefix: str = "") -> dict[str, mx.array]:
    flat: dict[str, mx.array] = {}
    for name, x in parameters.items():
        flat |= {prefix + name: x} if isinstance(x, mx.array) else _flat(x, f"{prefix}{name}.")
    return flat


def _size(x: mx.array) -> float:
    return float(mx.abs(x).max()) if x.size else 0.0


def _error(got: mx.array, expected: mx.array, size: float = 1.0) -> float:
    """Largest difference, relative to the largest number expected or `size`; infinite for NaN."""
    if got.shape != expected.shape:
        return mx.inf
    difference = _size(got.astype(mx.float32) - expected.astype(mx.float32))
    return difference / max(size, _size(expected)) if difference == difference else mx.inf
