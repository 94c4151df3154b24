"""Weights of 4 or 8 bits: value = number * scale + bias, with one scale and bias per quantization group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from .basics import silu_multiply
from .checks.arrays import check_arrays, check_floats
from .checks.types import check_attributes, kind
from .embedding import known_ids, nan_unless
from .errors import ArgumentError, ArgumentTypeError, UnsupportedError
from .layer_norm import RMSNorm
from .ops.explanation import ProductExplanation, explains
from .ops.packed import BITS, GROUP_SIZES, check_product
from .runtime.extension import cpu_kernels, load_extension
from .runtime.gpu import computes_on_gpu

NO_BIAS: tuple[mx.array | None, ...] = (None,)
_NATIVE_IDS = (mx.uint32, mx.int32, mx.int64)


@dataclass(eq=False)
class QuantizedWeights:
    """A packed matrix [O, I]: weight [O, I * bits / 32] uint32, scales and biases [O, I / group_size].

    The first number of a word is in its lowest bits.
    """

    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int
    weight: mx.array

    @staticmethod
    def from_mlx_layer(mlx_layer: Any) -> QuantizedWeights:
        """The arrays of a quantized layer of mlx, not copied."""
        mode = getattr(mlx_layer, "mode", "affine")
        if mode != "affine":
            raise ArgumentError("QuantizedWeights", "mode", repr(mode), "'affine'")
        if mlx_layer.biases is None:
            raise ArgumentError("QuantizedWeights", "biases", "None", "those of affine quantization")
        return QuantizedWeights(
            scales=mlx_layer.scales,
            biases=mlx_layer.biases,
            group_size=mlx_layer.group_size,
            bits=mlx_layer.bits,
            weight=mlx_layer.weight,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(O, I) of the dense matrix."""
        rows, words = self.weight.shape
        return rows, words * 32 // self.bits

    def astype(self, dtype: mx.Dtype) -> QuantizedWeights:
        """The same with scales and biases in `dtype`, the dtype of the activations."""
        return replace(self, scales=self.scales.astype(dtype), biases=self.biases.astype(dtype))

    def dequantize(self) -> mx.array:
        """The dense matrix [O, I] in the dtype of the scales."""
        return mx.dequantize(self.weight, self.scales, self.biases, self.group_size, self.bits)

    def rows(self, ids: mx.array) -> mx.array:
        """The dense rows [..., I] at `ids` [...]; an id outside 0..O-1 gives a row of NaN."""
        check_arrays("Embedding", ids=ids)
        native = cpu_kernels(self.scales.dtype)
        if native is None or not mx.issubdtype(ids.dtype, mx.integer):
            ids, known = known_ids(ids, self.weight.shape[0])
            weight, scales, biases = (
                _rows_at(table, ids) for table in (self.weight, self.scales, self.biases)
            )
            chosen = replace(self, weight=weight, scales=scales, biases=biases)
            return nan_unless(known, chosen.dequantize())
        if ids.dtype not in _NATIVE_IDS:
            ids = ids.astype(mx.int64)
        dense: mx.array = native.quantized_rows(
            ids, self.weight, self.scales, self.biases, self.group_size, self.bits
        )
        return dense


def _rows_at(table: mx.array, ids: mx.array) -> mx.array:
    if not computes_on_gpu() or table.shape[-1] * table.itemsize % 4 != 0:
        return table[ids]
    # MLX for CUDA compiles a kernel for each type at first use, for three seconds. As words of 32 bits, rows
    # of weights, scales and biases share one.
    return table.view(mx.uint32)[ids].view(table.dtype)


def quantized_linear(
    x: mx.array, w: QuantizedWeights, bias: mx.array | None = None, *, residual: mx.array | None = None
) -> mx.array:
    """Map `x` [..., I] through the packed weights [O, I] and the optional `bias` [O] to [..., O].

    A `residual` [..., O] is added to that.
    """
    added = {name: y for name, y in (("bias", bias), ("residual", residual)) if y is not None}
    check_floats("quantized_linear", x=x, **added)
    _check_packed("quantized_linear", "w", w)
    if native := _one_pass(x, [w], list(added.values())):
        return native([w], bias=None if bias is None else [bias], residual=residual)[0]
    product = quantized_matmul(w.scales, w.biases, w.group_size, w.bits, x, w.weight, transpose_b=True)
    product = product if bias is None else product + bias
    return product if residual is None else residual + product


def quantized_heads(
    x: mx.array,
    matrices: Sequence[QuantizedWeights],
    biases: Sequence[mx.array] | None,
    size: int,
    *,
    norm: RMSNorm | None = None,
) -> list[mx.array]:
    """Map `x` [..., I] through several matrices [H * size, I] to [..., H, size], in one pass.

    `biases` has one for each matrix. With `norm`, x is normalised first.
    """
    check_floats("quantized_heads", x=x, **{f"biases[{i}]": bias for i, bias in enumerate(biases or ())})
    for i, matrix in enumerate(matrices):
        _check_packed("quantized_heads", f"matrices[{i}]", matrix)
    if native := _one_pass(x, matrices, biases or ()):
        return native(matrices, bias=biases, norm=_of_native(norm), split=size)
    x = x if norm is None else norm(x)
    return [
        mx.unflatten(quantized_linear(x, w, bias), -1, (-1, size))
        for w, bias in zip(matrices, biases or NO_BIAS * len(matrices), strict=True)
    ]


def quantized_gate(
    x: mx.array, gate: QuantizedWeights, up: QuantizedWeights, *, norm: RMSNorm | None = None
) -> mx.array:
    """Compute silu(gate x) * up x, for two matrices [O, I], in one pass over `x` [..., I]: [..., O].

    With `norm`, x is normalised first.
    """
    check_floats("quantized_gate", x=x)
    for name, matrix in (("gate", gate), ("up", up)):
        _check_packed("quantized_gate", name, matrix)
    if native := _one_pass(x, [gate, up]):
        return native([gate, up], norm=_of_native(norm), gated=True)[0]
    x = x if norm is None else norm(x)
    return silu_multiply(quantized_linear(x, gate), quantized_linear(x, up))


def _check_packed(function: str, name: str, weight: object) -> None:
    if not isinstance(weight, QuantizedWeights):
        raise ArgumentTypeError(function, name, kind(weight), "QuantizedWeights")


def _of_native(norm: RMSNorm | None) -> tuple[mx.array, float] | None:
    return None if norm is None else (norm.weight, norm.eps)


def _one_pass(
    x: mx.array, matrices: Sequence[QuantizedWeights], added: Sequence[mx.array] = ()
) -> Callable[..., list[mx.array]] | None:
    """The native product of x with several matrices of one format; None if it does not apply."""
    native = cpu_kernels(x.dtype)
    group_size, bits = matrices[0].group_size, matrices[0].bits
    if native is None or any(y.dtype != x.dtype for y in added):
        return None
    if any((w.group_size, w.bits) != (group_size, bits) for w in matrices):
        return None

    def run(matrices: Sequence[QuantizedWeights], **options: Any) -> list[mx.array]:
        arrays = [(w.weight, w.scales, w.biases) for w in matrices]
        outputs: list[mx.array] = native.quantized_linear(x, arrays, group_size, bits, **options)
        return outputs

    return run


def quantized_matmul(
    scales: mx.array,
    biases: mx.array,
    group_size: int,
    bits: int,
    a: mx.array,
    b: mx.array,
    transpose_b: bool = False,
) -> mx.array:
    """Multiply `a` [..., I] by the transpose of the packed matrix `b` [O, I * bits / 32] to [..., O].

    Accumulated in float32 and rounded once, to the dtype of a, which is that of scales and biases.
    group_size: 32, 64 or 128; bits: 4 or 8. Pass transpose_b=True: no other product exists, and the default,
    which is the course's, is refused. On a GPU this is MLX's product, which is tuned there;
    `tiny_llm_ext.quantized_matmul` always runs our kernels. `explain` returns which one runs.
    """
    if not transpose_b:
        raise ArgumentError("quantized_matmul", "transpose_b", transpose_b, "True")
    check_product("quantized_matmul", scales, biases, group_size, bits, a=a, b=b)
    return _multiply(scales, biases, group_size, bits, a, b)


def _multiply(
    scales: mx.array, biases: mx.array, group_size: int, bits: int, x: mx.array, w: mx.array
) -> mx.array:
    """The product of checked arguments."""
    if computes_on_gpu():
        return multiply_on_gpu(x, QuantizedWeights(scales, biases, group_size, bits, w))
    native = load_extension()
    if x.ndim == 2:
        return native.quantized_matmul(scales, biases, group_size, bits, x, w, True)  # type: ignore[no-any-return]
    # quantized_linear restores the axes itself: a reshape here would fix the sizes of this call in a graph
    # that is compiled for any shapes.
    return native.quantized_linear(x, [(w, scales, biases)], group_size, bits)[0]  # type: ignore[no-any-return]


def multiply_on_gpu(x: mx.array, weights: QuantizedWeights) -> mx.array:
    """MLX's product of `x` [..., I] with packed weights [O, I], without checks: [..., O]."""
    arrays = weights.weight, weights.scales, weights.biases
    if x.ndim != 3 or x.shape[1] != 1 or x.shape[0] < 2:
        return mx.quantized_matmul(x, *arrays, True, weights.group_size, weights.bits)
    # The rows of a batch are one matrix: on CUDA, as many matrices of one row took up to 13 times as long.
    product = mx.quantized_matmul(mx.squeeze(x, 1), *arrays, True, weights.group_size, weights.bits)
    return mx.expand_dims(product, 1)


def mx_quantized_matmul(
    x: mx.array,
    w: mx.array,
    scales: mx.array,
    biases: mx.array | None = None,
    transpose: bool = True,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
) -> mx.array:
    """`quantized_matmul` with the arguments of `mx.quantized_matmul`, in its order and with its defaults.

    x [..., I] times the transpose of the packed matrix w [O, I * bits / 32], whose groups have the scales
    and biases [O, I / group_size] -> [..., O]. All but w have one dtype, float32, float16 or bfloat16.
    Accumulated in float32 and rounded once, to that dtype. group_size: 32, 64 (default) or 128; bits: 4
    (default) or 8. What only MLX supports, such as transpose=False and other modes, is NotImplementedError.
    """
    name = "mx_quantized_matmul"
    group_size = 64 if group_size is None else group_size
    bits = 4 if bits is None else bits
    for argument, got, known in (
        ("transpose", transpose, (True,)),
        ("group_size", group_size, GROUP_SIZES),
        ("bits", bits, BITS),
        ("mode", mode, ("affine",)),
    ):
        if got not in known:
            expected = " or ".join(map(repr, known))
            raise UnsupportedError(name, argument, repr(got), f"{expected}; mx.quantized_matmul has others")
    if biases is None:
        raise ArgumentTypeError(name, "biases", None, "those of affine quantization")
    check_product(name, scales, biases, group_size, bits, x=x, w=w)
    return _multiply(scales, biases, group_size, bits, x, w)


@explains(quantized_matmul, mx_quantized_matmul)
def _explain_product(
    function: Callable[..., mx.array], *arguments: Any, **options: Any
) -> ProductExplanation:
    function(*arguments, **options)  # not evaluated; raises the errors of the call
    if computes_on_gpu():
        ours = "that of MLX was tuned on GPUs; ours, tiny_llm_ext.quantized_matmul, was never timed on one"
        return ProductExplanation("mlx.quantized_matmul", (ours,))
    return ProductExplanation("cpu.quantized_matmul")


def dequantize_linear(mlx_layer: Any) -> mx.array:
    """The dense matrix [O, I] of a quantized layer, in the dtype of its scales."""
    packed = ("weight", "scales", "biases", "group_size", "bits")
    check_attributes("dequantize_linear", "mlx_layer", mlx_layer, packed, "a quantized layer")
    return QuantizedWeights.from_mlx_layer(mlx_layer).dequantize()


class QuantizedEmbedding:
    """An `Embedding` with a quantized table [V, E]: rows are dequantized when they are looked up."""

    def __init__(self, vocab_size: int, embedding_dim: int, weight: QuantizedWeights):
        _check_packed("Embedding", "weight", weight)
        if weight.shape != (vocab_size, embedding_dim):
            raise ArgumentError("Embedding", "weight", weight.shape, f"({vocab_size}, {embedding_dim})")
        self.vocab_size = vocab_size
        self.embedding_dim = embedding_dim
        self.weight = weight

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up the vectors [..., E] of the token `ids` [...]; an id outside 0..V-1 gives a row of NaN."""
        return self.weight.rows(ids)

    def as_linear(self, x: mx.array) -> mx.array:
        """Score the vectors `x` [..., E] against every token's vector: logits [..., V]."""
        return quantized_linear(x, self.weight)
