"""The default sizes of an engine, and how many pages it has: from its memory and the longest request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..cache.storage import PagedStorage
from ..errors import ArgumentError
from ..loading.weights.memory import group_limits
from ..runtime.gpu import computes_on_gpu, gpu_facts

PAGE_SIZE = 64  # attention over smaller pages is slower, and larger ones are shared less often
STEP_TOKENS = 512
MAX_RUNNING = 64
MAX_WAITING = 256
DEFAULT_SHARE = 0.2  # of the machine's memory, at most
DEFAULT_REQUESTS = 8  # of the longest kind


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The pages of a model in an engine, and what one holds; `draft`: as many of the model that drafts."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: mx.Dtype
    page_size: int
    num_pages: int
    draft: PoolSize | None = None

    @property
    def page_bytes(self) -> int:
        """The memory of one page of all layers, and of that of the draft model."""
        own = PagedStorage.page_bytes(self.layers, self.kv_heads, self.page_size, self.head_dim, self.dtype)
        return own if self.draft is None else own + self.draft.page_bytes

    @property
    def memory(self) -> int:
        """The memory of all pages, in bytes."""
        return self.num_pages * self.page_bytes

    @property
    def tokens(self) -> int:
        """The number of tokens that fit into all pages."""
        return self.num_pages * self.page_size


def pool_size(
    model: Any, context: int, page_size: int, kv_memory: int | None, draft_model: Any = None
) -> PoolSize:
    """The pages that fit into `kv_memory` bytes; by default, room for eight requests of `context` tokens.

    The default takes at most a fifth of the machine's memory. A page has room for the tokens of both models.
    """
    bytes_per_page = _page_bytes(model, page_size, draft_model)
    if kv_memory is None:
        wanted = DEFAULT_REQUESTS * -(-context // page_size)
        share = DEFAULT_SHARE / (1 if model.ranks is None else model.ranks.size)  # they may share a machine
        num_pages = min(wanted, int(share * machine_memory()) // bytes_per_page)
    else:
        num_pages = kv_memory // bytes_per_page
    if num_pages < 1:
        raise ArgumentError(
            "Engine", "kv_memory", f"{kv_memory} bytes", f"at least one page of {bytes_per_page} bytes"
        )
    draft = None if draft_model is None else size_of(draft_model, page_size, num_pages)
    return replace(size_of(model, page_size, num_pages), draft=draft)


def _page_bytes(model: Any, page_size: int, draft_model: Any) -> int:
    """The memory of a page of both models."""
    models = [each for each in (model, draft_model) if each is not None]
    return sum(size_of(each, page_size, 1).page_bytes for each in models)


def size_of(model: Any, page_size: int, num_pages: int) -> PoolSize:
    """So many pages for the layers and heads of a model in this process."""
    attention = model.layers_inner[0].self_attn
    layers = len(model.layers_inner)
    return PoolSize(layers, attention.num_kv_heads, attention.head_dim, model.precision, page_size, num_pages)


def batch_memory(model: Any, lengths: Sequence[int], batch_size: int, draft_model: Any = None) -> int:
    """Bytes for the pages of the longest `batch_size` requests of these numbers of tokens.

    At most a fifth of the machine's memory, but enough for the longest one.
    """
    page = _page_bytes(model, PAGE_SIZE, draft_model)
    pages = sorted((-(-length // PAGE_SIZE) for length in lengths), reverse=True)[:batch_size]
    if len(pages) == 1:  # no need to ask for the memory of the machine
        return page * pages[0]
    spare = -(-len(pages) // 4)  # what the scheduler leaves free when it starts a request
    most = int(DEFAULT_SHARE * machine_memory()) // page
    return page * max(pages[0], min(sum(pages) + spare, most))


def machine_memory(system: Path = Path("/")) -> int:
    """Bytes of memory of the device that computes, or what the control groups of the process grant."""
    facts = gpu_facts() if computes_on_gpu() else None
    if facts is not None and facts["memory_bytes"] is not None:
        return int(facts["memory_bytes"])
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole, *group_limits(system)])
