"""The arguments that attention functions share: their types, and how they become those of the native ones."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypedDict

import mlx.core as mx

Mask = mx.array | str | None
Window = int | tuple[int, int] | None
Lengths = mx.array | Sequence[int] | None
Stream = mx.Stream | mx.Device | None


class AttentionOptions(TypedDict, total=False):
    """The keyword arguments that `flash_attention`, `attention_reference` and `explain` have in common."""

    causal: bool
    window: Window
    softcap: float | None
    sinks: mx.array | None
    q_lens: Lengths
    kv_start: Lengths
    kv_lens: Lengths
    deterministic: bool
    batch_invariant: bool
    on_fallback: str
    k_quant: None
    v_quant: None
    stream: Stream


FLAGS = ("causal", "deterministic", "batch_invariant", "return_lse")
# A bare TypedDict takes any keyword at run time.
KEYWORDS = AttentionOptions.__annotations__


def native_options(
    function: str, query: object, key: object, value: object, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Check what the native functions cannot name in a clear text, and leave out what is only reserved."""
    for name, argument in (("query", query), ("key", key), ("value", value)):
        _expect(function, name, argument, mx.array, "an mlx array")
    for name, option in options.items():
        if name not in KEYWORDS and name != "return_lse":
            known = ", ".join(KEYWORDS)
            raise TypeError(f"{function}: got an unknown option {name!r}, expected one of {known}")
        if name in FLAGS:
            _expect(function, name, option, bool, "True or False")
        if name in ("k_quant", "v_quant") and option is not None:
            raise NotImplementedError(
                f"{function}: {name}: quantized keys and values have no kernel yet; pass them dequantized"
            )
    if (sinks := options.get("sinks")) is not None:
        _expect(function, "sinks", sinks, mx.array, "an mlx array or None")
    return {name: x for name, x in options.items() if name not in ("k_quant", "v_quant", "return_lse")}


def check_scale(function: str, scale: object) -> None:
    """A number, a number in an array without axes, or None; what looks like a mask is called one."""
    if scale is None:
        return
    if isinstance(scale, mx.array):
        if scale.ndim == 0 and scale.dtype not in (mx.bool_, mx.complex64):
            return
        got = f"{scale.dtype} array of shape {scale.shape}"
    elif isinstance(scale, Real) and not isinstance(scale, bool):
        return
    else:
        got = repr(scale) if isinstance(scale, str) else type(scale).__name__
    hint = "; did you mean mask=?" if isinstance(scale, str | mx.array) else ""
    raise TypeError(f"{function}: scale: got {got}, expected a number or an array without axes{hint}")


def read_scale(function: str, scale: float | mx.array | None) -> float | None:
    """The scale as a number."""
    check_scale(function, scale)
    if not isinstance(scale, mx.array):
        return None if scale is None else float(scale)
    try:
        return float(scale.astype(mx.float32).item())  # type: ignore[arg-type]
    except ValueError as traced:
        raise NotImplementedError(
            f"{function}: scale: got an array that mx.compile or mx.vmap traces, so its value is unknown; "
            "pass a number, or multiply the query by it and pass scale=1"
        ) from traced


def without_gradient(scale: mx.array, *results: mx.array) -> tuple[mx.array, ...]:
    """The results, bit by bit; a gradient with respect to `scale`, which was read, is refused, not 0."""
    constant: mx.array = _refuse_gradient(scale.astype(mx.float32))  # type: ignore[assignment]
    # A branch that is never taken: the results depend on the constant for derivatives only.
    return tuple(mx.where(mx.array(True), x, constant.astype(x.dtype)) for x in results)


@mx.custom_function
def _refuse_gradient(scale: mx.array) -> mx.array:
    return scale


def _refuse(*_: object) -> mx.array:
    raise NotImplementedError(
        "flash_attention: the gradient with respect to scale is not supported; use attention_reference, "
        "or multiply the query by it and pass scale=1"
    )


_refuse_gradient.vjp(_refuse)
_refuse_gradient.jvp(_refuse)


def _expect(function: str, name: str, argument: object, wanted: type, text: str) -> None:
    if not isinstance(argument, wanted):
        raise TypeError(f"{function}: {name}: got {type(argument).__name__}, expected {text}")
