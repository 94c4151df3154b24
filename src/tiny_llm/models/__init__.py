"""The forward pass of all families. A stage of the course chooses its operations: `Ops`."""

from collections.abc import Callable
from typing import Any

from .names import shortcut_name_to_full_name

__all__ = ["dispatch_model", "shortcut_name_to_full_name"]

# The course calls `models.dispatch_model`. The function chooses among the classes of tiny_llm.course,
# which is built on this package, so tiny_llm/__init__.py assigns it.
dispatch_model: Callable[..., Any]
