"""The arguments that attention functions share: types, checks, and conversion for the native functions."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypedDict, get_args

import mlx.core as mx

from ..checks.arrays import check_arrays, dtype_name, wrong_dtype
from ..checks.types import kind
from ..errors import ArgumentError, ArgumentTypeError, UnsupportedError

Mask = mx.array | str | None
Window = int | tuple[int, int] | None
Lengths = mx.array | Sequence[int] | None
StreamOrDevice = mx.Stream | mx.ThreadLocalStream | mx.Device | mx.DeviceType | None


class AttentionOptions(TypedDict, total=False):
    """The keyword arguments shared by `flash_attention`, `attention_reference` and `explain`."""

    causal: bool
    window: Window
    softcap: float | None
    sinks: mx.array | None
    q_lens: Lengths
    kv_start: Lengths
    kv_lens: Lengths
    deterministic: bool
    batch_invariant: bool
    schedule: str
    on_fallback: str
    k_quant: None
    v_quant: None
    stream: StreamOrDevice


# Checked below: at run time, a TypedDict accepts any keyword.
KEYWORDS = AttentionOptions.__annotations__
KNOWN = {*KEYWORDS, "return_lse"}

# For wrong types of these, the native functions would raise an error with their whole signature. Mask,
# window and lengths have clear errors there.
FLAG = (bool, "True or False")
TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "causal": FLAG,
    "deterministic": FLAG,
    "batch_invariant": FLAG,
    "return_lse": FLAG,
    "sinks": ((mx.array, type(None)), "an mlx array or None"),
    "schedule": (str, "'v1' or 'v2'"),
    "on_fallback": (str, "'error', 'warn' or 'allow'"),
    "stream": (get_args(StreamOrDevice), "a stream or device of MLX, or None"),
}


def native_options(
    function: str, query: object, key: object, value: object, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The keyword arguments of the native function: checked, and without those that are only reserved."""
    check_arrays(function, query=query, key=key, value=value)
    if not options.keys() <= KNOWN:
        unknown, known = min(options.keys() - KNOWN), ", ".join(KEYWORDS)
        raise ArgumentTypeError(function, "", f"an unknown option {unknown!r}", f"one of {known}")
    return converted_options(function, options)


def converted_options(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same for options whose names are known."""
    for name, (types, text) in TYPES.items():
        if name in options and not isinstance(options[name], types):
            raise ArgumentTypeError(function, name, kind(options[name]), text)
    native = dict(options)
    if (softcap := native.get("softcap")) is not None:
        native["softcap"] = _number(function, "softcap", softcap, "a finite number above 0, or None")
    for name in ("k_quant", "v_quant"):
        if native.pop(name, None) is not None:
            expected = "None: no kernel reads quantized keys or values yet; pass what mx.dequantize returns"
            raise UnsupportedError(function, name, "a format", expected)
    return native


def check_scale(function: str, scale: object) -> None:
    """A number, an array without axes, or None. A mask passed as scale gets an error of its own."""
    if scale is None or _is_number(scale):
        return
    if not isinstance(scale, mx.array):
        got = repr(scale) if isinstance(scale, str) else kind(scale)
    elif scale.ndim == 0:
        if scale.dtype in (mx.bool_, mx.complex64):
            raise wrong_dtype(function, "scale", scale.dtype, "a type of real numbers")
        return
    else:
        got = f"{dtype_name(scale.dtype)} array of shape {scale.shape}"
    hint = "; did you mean mask=?" if isinstance(scale, str | mx.array) else ""
    raise ArgumentTypeError(function, "scale", got, f"a number or an array without axes{hint}")


def read_scale(function: str, scale: float | mx.array | None) -> float | None:
    """The scale as a float; None for the default."""
    check_scale(function, scale)
    if scale is None:
        return None
    if not isinstance(scale, mx.array):
        return _number(function, "scale", scale, "a finite number")
    try:
        return float(scale.astype(mx.float32).item())  # type: ignore[arg-type]
    except ValueError as traced:
        raise UnsupportedError(
            function,
            "scale",
            "an array that mx.compile or mx.vmap traces, so its value is unknown",
            "a number; or multiply the query by it and pass scale=1",
        ) from traced


def results(
    function: str, scale: float | mx.array | None, out: mx.array, lse: mx.array | None
) -> mx.array | tuple[mx.array, mx.array]:
    """What a call with this scale returns: the output, and the log-sum-exp if there is one."""
    if isinstance(scale, mx.array):
        out = without_gradient(function, scale, out)
        lse = None if lse is None else without_gradient(function, scale, lse)
    return out if lse is None else (out, lse)


def without_gradient(function: str, scale: mx.array, result: mx.array) -> mx.array:
    """`result` unchanged, except that a gradient with respect to `scale` is an error instead of 0."""

    @mx.custom_function
    def same(scale: mx.array) -> mx.array:
        return scale

    def refuse(*_: object) -> mx.array:
        raise UnsupportedError(
            function,
            "scale",
            "a gradient with respect to it",
            "none; use attention_reference, or multiply the query by it and pass scale=1",
        )

    same.vjp(refuse)
    same.jvp(refuse)
    constant: mx.array = same(scale.astype(mx.float32))  # type: ignore[assignment]
    # A branch that is never taken: only derivatives depend on the constant.
    return mx.where(mx.array(True), result, constant.astype(result.dtype))


def _is_number(x: object) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


def _number(function: str, name: str, number: Any, expected: str) -> float:
    if not _is_number(number):
        raise ArgumentTypeError(function, name, kind(number), expected)
    try:
        return float(number)
    except OverflowError:
        raise ArgumentError(function, name, "an integer beyond every float", expected) from None
