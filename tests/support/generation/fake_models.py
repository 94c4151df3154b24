"""Models that follow a rule and read their context back out of real caches.

A token that a cache loses, repeats, hides or puts at a wrong position changes the scores, or fails at once.
"""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import numpy as np

from tiny_llm.generate import stream_generate
from tiny_llm.kv_cache import TinyKvFullCache
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

from .byte_text import VOCABULARY
from .rules import Rule


class FullContextFake:
    """A model without a cache: ids [B, L] -> logits [B, L, V]."""

    def __init__(self, rule: Rule, context: int | None = None):
        self.rule = rule
        self.calls: list[tuple[int, ...]] = []
        self.vocab_size = VOCABULARY
        self.mlx_model = SimpleNamespace(args=SimpleNamespace(max_position_embeddings=context))

    def __call__(self, inputs: mx.array) -> mx.array:
        self.calls.append(inputs.shape)
        rows = [[self.rule(tuple(row[: i + 1])) for i in range(len(row))] for row in inputs.tolist()]
        return mx.array(np.array(rows))


class CachedFake(FullContextFake):
    """A model of two layers: their caches hold token and position, and the context is read from there."""

    num_hidden_layers = 2

    def __init__(self, rule: Rule, context: int | None = None):
        super().__init__(rule, context)
        self.caches: list[TinyKvFullCache] = []

    def create_kv_cache(self) -> list:
        self.caches += (made := [self._make_cache() for _ in range(self.num_hidden_layers)])
        return made

    def _make_cache(self) -> TinyKvFullCache:
        return RecordingCache()

    def __call__(self, inputs: mx.array, offset: int | list[int], cache: list) -> mx.array:
        rows, length = inputs.shape
        self.calls.append(inputs.shape)
        offsets = [offset] * rows if isinstance(offset, int) else offset
        assert len(offsets) == rows
        positions = mx.array([[start + i for i in range(length)] for start in offsets])
        keys = inputs.astype(mx.float32)[:, None, :, None]
        values = positions.astype(mx.float32)[:, None, :, None]
        contexts = [self._contexts(layer, keys, values) for layer in cache]
        assert all(context == contexts[0] for context in contexts)
        assert len(cache) == self.num_hidden_layers
        no_scores = np.zeros(VOCABULARY, np.float32)
        return mx.array(
            np.array([[self.rule(seen) if seen else no_scores for seen in row] for row in contexts[0]])
        )

    def _contexts(self, layer, keys: mx.array, values: mx.array) -> list[list[tuple[int, ...]]]:
        """The tokens that each query of each row may see."""
        rows, _, length, _ = keys.shape
        keys, values, _, mask = layer.update_and_fetch(keys, values, length, "causal")
        total = keys.shape[2]
        if isinstance(mask, str):
            visible = np.tri(length, total, total - length, dtype=bool)
            mask = mx.array(np.where(visible, 0.0, -np.inf))
        visible = np.broadcast_to(np.array(mask), (rows, 1, length, total))[:, 0] == 0
        tokens, places = (np.array(array)[:, 0, :, 0].astype(int) for array in (keys, values))
        return [[in_order(tokens[b, see], places[b, see]) for see in visible[b]] for b in range(rows)]


class PagedFake(CachedFake):
    """The same with pages: contexts come from the block table."""

    def __init__(self, rule: Rule, context: int | None = None, page_size: int = 4):
        super().__init__(rule, context)
        self.page_pool = TinyKvPagedPool(page_size)

    def _make_cache(self) -> TinyKvPagedCache:
        return TinyKvPagedCache(self.page_pool)

    def _contexts(self, layer, keys: mx.array, values: mx.array) -> list[list[tuple[int, ...]]]:
        rows, _, length, _ = keys.shape
        pages = layer.update_and_fetch_paged(keys, values, length, "causal")
        tokens, places = (
            np.array(array)[:, 0, :, 0].astype(int) for array in (pages.key_pages, pages.value_pages)
        )
        contexts = []
        for table, total in zip(pages.block_table.tolist(), pages.context_lens.tolist(), strict=True):
            slots = [(table[t // pages.page_size], t % pages.page_size) for t in range(total)]
            seen = in_order([tokens[slot] for slot in slots], [places[slot] for slot in slots])
            contexts.append([seen[: max(total - length + i + 1, 0)] for i in range(length)])
        assert len(contexts) == rows
        return contexts


def in_order(tokens, places) -> tuple[int, ...]:
    assert list(places) == list(range(len(places))), "a token is at a wrong position"
    return tuple(int(token) for token in tokens)


class RecordingCache(TinyKvFullCache):
    """The real cache, which also counts how often it was released."""

    released = 0

    def release(self) -> None:
        self.released += 1
        super().release()


def answers_one_by_one(model, tokenizer, prompts: list[str], max_seq_len: int) -> list[tuple[int, str]]:
    """The answers that `batch_generate` should give: each prompt alone."""
    answers = []
    for index, prompt in enumerate(prompts):
        room = max_seq_len + 1 - len(tokenizer.encode(prompt, add_special_tokens=False))
        answers.append((index, "".join(stream_generate(model, tokenizer, prompt, max_tokens=room))))
    assert all(len(text) > 9 for _, text in answers), "these answers are too short to show a difference"
    return answers
