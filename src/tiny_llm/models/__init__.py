"""The forward pass of Qwen2 and Qwen3, written once; a stage of the course fills the slots of `Ops`.

`tiny_llm.models.dispatch_model` is found on first use: it is in `course`, which is built on this package.
"""

from typing import Any

from .names import shortcut_name_to_full_name

__all__ = ["dispatch_model", "shortcut_name_to_full_name"]


def __getattr__(name: str) -> Any:
    if name != "dispatch_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..course.dispatch import dispatch_model

    return dispatch_model
