"""RoPE in config.json: its base, its scaling, and the context that follows."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError
from ..ops.yarn import MAX_POSITIONS, ORIGINAL, read_rope_scaling
from .errors import LoadError
from .files import Fields


class Rope(NamedTuple):
    """`scaling` names the context of the training, which may be absent in the file."""

    theta: float
    context: int
    scaling: Mapping[str, Any] | None


def read_rope(raw: Fields) -> Rope:
    """The checked fields; newer files have them in `rope_parameters`, to which users add a `rope_scaling`."""
    objects = {
        key: raw.object(key) for key in ("rope_parameters", "rope_scaling") if raw.get(key) is not None
    }
    where = next((each for each in objects.values() if each.get("rope_theta") is not None), raw)
    theta = where.number("rope_theta", 0, 1e15)
    positions = raw.integer("max_position_embeddings", 1, MAX_POSITIONS)
    rope, found = Rope(theta, positions, None), None
    for key, given in objects.items():
        try:
            yarn = read_rope_scaling(given.values, positions, theta)
        except ArgumentError as error:
            raise LoadError(f"{raw.name}: {key}: {error.argument}: {error.reason}") from error
        if yarn is None:
            continue
        if found not in (None, yarn):
            raise raw.error(key, "the scaling of rope_parameters")
        rope, found = Rope(theta, yarn.context, {**given.values, ORIGINAL: yarn.original}), yarn
    return rope
