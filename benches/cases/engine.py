"""The rows of `bench engine`: what many requests at once get from one model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from benches.cases.models import EMBEDDED, SMALL, model_shape
from benches.harness.types import SHORT_NAMES, Dtype
from benches.names import SEQUENCES
from tiny_llm_tools.benchmark.requests import BYTE_TOKENS

Kind = Literal["streams", "decode", "step", "rate", "gap", "total", "prefix", "lookup", "draft", "schema"]

MANY = 64  # requests at once, as many as the engine computes in one step
GROUPS: dict[str, str] = {
    "streams": f"{SEQUENCES} and {MANY} requests at once, beside llama.cpp's batched decode and one stream",
    "overhead": "what the engine adds to the model: the part of a step outside kernels, and a stream alone",
    "gap": "a running answer while a prompt of 2048 tokens comes in",
    "prefix": "time to first token of two requests that begin with the same 1500 tokens",
    "lookup": "drafts from the text so far, where answers copy and where they do not",
    "draft": "the embedded model with 16-bit weights, for which its 4-bit ones draft",
    "schema": "answers that follow a JSON schema, beside free ones with as many tokens",
}
LONG_PROMPT, PREFIX, TAIL = 2048, 1500, 16  # tokens
# What answers with drafts are measured on. The embedded model tells a story, and when it is asked again, the
# same one: a real copy. Random weights answer random tokens with one token again and again, which is no text,
# but shows what a larger model gains at most.
FREE_TEXT, COPY, LOOP_TEXT = "a story", "a story told again", "one token again and again"
QUESTION = "Tell me a story about a lighthouse."
# The answer cannot end before its last token: its list needs more strings than it has tokens.
SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1000}


@dataclass(frozen=True, slots=True)
class Case:
    """Requests to one model. `prompt`, `output` and `incoming` are numbers of tokens.

    `incoming`: of a prompt that comes in beside a running answer, or after the prompts, which then are alike.
    """

    group: str
    kind: Kind
    model: str
    prompt: int
    output: int
    streams: int = 1
    dtype: Dtype = "bfloat16"
    incoming: int = 0
    text: str = ""  # of `lookup` and `draft`: FREE_TEXT, COPY or LOOP_TEXT

    @property
    def name(self) -> str:
        sizes = f"{self.prompt} in, {self.output} out"
        what = {
            "streams": f"{self.streams} x ({sizes})",
            "decode": f"{self.streams} x decode after {self.prompt} tokens",
            "step": f"outside of kernels, {self.streams} streams",
            "rate": f"one stream ({sizes})",
            "gap": f"gap while {self.incoming} tokens come in",
            "total": f"all tokens while {self.incoming} come in",
            "prefix": f"first token after the same {self.prompt} tokens",
            "lookup": f"lookup, {self.text} ({self.output} out)",
            "draft": f"draft model, {self.text} ({self.output} out)",
            "schema": f"JSON schema ({sizes})",
        }[self.kind]
        return f"{self.model.removeprefix('random:')} {SHORT_NAMES[self.dtype]} {what}"

    @property
    def is_rate(self) -> bool:
        """Whether a sample is the time of a token, so that tables show rates."""
        return self.kind not in ("step", "gap", "prefix")

    def prompts(self) -> list[list[int]]:
        """Random tokens: one for each stream, and what comes in; or two that begin alike."""
        numbers = random.Random(self.prompt)
        ids = range(BYTE_TOKENS, model_shape(self.model).vocab_size)
        found = [numbers.choices(ids, k=self.prompt) for _ in range(self.streams)]
        if self.kind in ("gap", "total"):
            return [*found, numbers.choices(ids, k=self.incoming)]
        if self.kind == "prefix":
            return [found[0] + numbers.choices(ids, k=self.incoming) for _ in range(2)]
        return found


def cases(group: str) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    match group:
        case "streams":
            for streams in (SEQUENCES, MANY):
                yield Case(group, "streams", SMALL, 128, 64, streams)
                yield Case(group, "decode", SMALL, 128, 64, streams)
        case "overhead":
            yield Case(group, "step", EMBEDDED, 32, 128, SEQUENCES)
            yield Case(group, "rate", EMBEDDED, 32, 256)
            yield Case(group, "rate", SMALL, 32, 64)
        case "gap":
            yield Case(group, "gap", SMALL, 32, 0, incoming=LONG_PROMPT)
            yield Case(group, "total", SMALL, 32, 0, incoming=LONG_PROMPT)
        case "prefix":
            yield Case(group, "prefix", SMALL, PREFIX, 8, incoming=TAIL)
        case "lookup":
            yield Case(group, "lookup", EMBEDDED, 0, 96, text=COPY)
            yield Case(group, "lookup", EMBEDDED, 0, 96, text=FREE_TEXT)
            yield Case(group, "lookup", SMALL, 128, 128, text=LOOP_TEXT)
        case "draft":
            yield Case(group, "draft", EMBEDDED, 0, 96, text=FREE_TEXT)
        case "schema":
            yield Case(group, "schema", EMBEDDED, 32, 256)
            yield Case(group, "schema", SMALL, 32, 64)


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`: those of the embedded model."""
    return case.model == EMBEDDED
