"""The stages of the course that `--loader` offers, and what each of them supports."""

import inspect
from dataclasses import dataclass
from typing import Any

from ..course.dispatch import MODELS

SUMMARIES = {
    1: "dense weights and no KV cache, so each token recomputes the whole sequence",
    2: "quantized weights, KV cache, FlashAttention",
    3: "quantized weights, paged KV cache, paged attention",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage. What it supports is read from its model classes, so no second list can disagree."""

    name: str
    week: int
    summary: str
    classes: tuple[type[Any], ...]

    @property
    def has_cache(self) -> bool:
        return all(hasattr(kind, "create_kv_cache") for kind in self.classes)

    @property
    def has_flash_switch(self) -> bool:
        return all("enable_flash_attn" in inspect.signature(kind).parameters for kind in self.classes)


LOADERS = {
    name: Stage(name, week, summary, tuple(stages[week] for stages in MODELS.values()))
    for week, summary in SUMMARIES.items()
    for name in [f"week{week}"]
}

WITH_CACHE = " or ".join(loader.name for loader in LOADERS.values() if loader.has_cache)
WITH_FLASH_SWITCH = " or ".join(loader.name for loader in LOADERS.values() if loader.has_flash_switch)
# The first that offers FlashAttention.
DEFAULT_LOADER = next(loader.name for loader in LOADERS.values() if loader.has_flash_switch)
