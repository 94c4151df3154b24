"""A language that fits in a test: text as bytes, and models that follow any rule from context to scores.

The models use the caches that they are given as real ones do, and read the context back out of them: a token
that a cache loses, doubles, hides or puts at a wrong position changes what they say, or fails at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import mlx.core as mx
import numpy as np

from tiny_llm.generate import stream_generate
from tiny_llm.kv_cache import TinyKvFullCache
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

END = 256  # behind the 256 bytes
VOCABULARY = 258  # END, and another id that ends an answer

Rule = Callable[[tuple[int, ...]], np.ndarray]


class ByteDetokenizer:
    """Shows half a character as U+FFFD, as simple decoders do."""

    def __init__(self, tokenizer: object = None):
        self.reset()

    def reset(self) -> None:
        self.bytes = b""

    def add_token(self, token: int) -> None:
        assert token < END, "an end token is no text"
        self.bytes += bytes([token])

    @property
    def text(self) -> str:
        return self.bytes.decode(errors="replace")


class PatientDetokenizer(ByteDetokenizer):
    """Holds back the newest byte until `finalize()`, as those do that look ahead."""

    def reset(self) -> None:
        super().reset()
        self.ended = False

    def finalize(self) -> None:
        self.ended = True

    @property
    def text(self) -> str:
        shown = self.bytes if self.ended else self.bytes[:-1]
        return shown.decode(errors="replace")


class ByteTokenizer:
    """One token for each byte of UTF-8. `shared`: one detokenizer for all who ask, as old tokenizers do."""

    eos_token_id = END
    _tokenizer = None

    def __init__(self, detokenizer: type[ByteDetokenizer] = ByteDetokenizer, *, shared: bool = False):
        self._make = detokenizer
        self._shared = detokenizer() if shared else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())

    @property
    def detokenizer(self) -> ByteDetokenizer:
        return self._shared or self._make()


class AsciiDetokenizer(ByteDetokenizer):
    """Ids from 0 to 94 are the printable characters of ASCII."""

    def add_token(self, token: int) -> None:
        super().add_token(token + 32)


class AsciiTokenizer(ByteTokenizer):
    """For real models of 96 tokens; the last one is the end."""

    eos_token_id = 95

    def __init__(self) -> None:
        super().__init__(AsciiDetokenizer)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [byte - 32 for byte in super().encode(text, add_special_tokens)]


def answering(answers: Mapping[str, list[int]]) -> Rule:
    """Say these tokens behind these prompts, and END behind that; token 0 to all that was not said so."""
    prompts = {tuple(prompt.encode()): [*answer, END] for prompt, answer in answers.items()}

    def rule(context: tuple[int, ...]) -> np.ndarray:
        scores = np.zeros(VOCABULARY, np.float32)
        for prompt, answer in prompts.items():
            said = list(context[len(prompt) :])
            if context[: len(prompt)] == prompt and said == answer[: len(said)] != answer:
                scores[answer[len(said)]] = 9
        return scores

    return rule


def babbling(seed: int = 0, *, width: int = VOCABULARY, like: Rule | None = None, noise: float = 1.0) -> Rule:
    """Random scores, a function of the context; with `like`, noisy copies of the scores of another rule."""

    def rule(context: tuple[int, ...]) -> np.ndarray:
        random = np.random.default_rng([seed, *context])
        scores = noise * random.standard_normal(width).astype(np.float32)
        if like is not None:
            scores += like(context)[:width]
        elif random.random() < 1 / 40:
            scores[END] = 9
        scores[END + 1 :] = -np.inf
        return scores

    return rule


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
    """A model of two layers that keeps token and position in its caches, and finds its context there."""

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
        silence = np.zeros(VOCABULARY, np.float32)
        return mx.array(
            np.array([[self.rule(seen) if seen else silence for seen in row] for row in contexts[0]])
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
    assert list(places) == list(range(len(places))), "tokens do not stand where they were said to stand"
    return tuple(int(token) for token in tokens)


class RecordingCache(TinyKvFullCache):
    """The real cache, which also counts how often it was released."""

    released = 0

    def release(self) -> None:
        self.released += 1
        super().release()


def greedy(rule: Rule, prompt: str, limit: int | None = None) -> list[int]:
    """What the rule says behind a prompt, token by token, up to and without END."""
    context = list(prompt.encode())
    start = len(context)
    while limit is None or len(context) < start + limit:
        token = int(rule(tuple(context)).argmax())
        if token == END:
            break
        context.append(token)
    return context[start:]


def one_by_one(model, tokenizer, prompts: list[str], max_seq_len: int) -> list[tuple[int, str]]:
    """What `batch_generate` should say, with each prompt answered alone."""
    answers = []
    for index, prompt in enumerate(prompts):
        room = max_seq_len + 1 - len(tokenizer.encode(prompt, add_special_tokens=False))
        answers.append((index, "".join(stream_generate(model, tokenizer, prompt, max_tokens=room))))
    assert all(len(text) > 9 for _, text in answers), "these answers show little"
    return answers


def as_text(tokens: list[int]) -> str:
    """The whole characters of these bytes; a half one at the end is dropped."""
    return bytes(tokens).decode(errors="replace").rstrip("\ufffd")


def fail_behind(rule: Rule, length: int) -> Rule:
    """The same rule for contexts of at most that many tokens, and a ZeroDivisionError behind that."""

    def failing(context: tuple[int, ...]) -> np.ndarray:
        if len(context) > length:
            raise ZeroDivisionError("a fault in the model")
        return rule(context)

    return failing
