"""The rows of `bench serving`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benches.cases.models import EMBEDDED, SMALL
from benches.names import LLAMA_CPP, MLX_LM

Group = Literal["streams", "http", "prefix", "gap", "clients"]
GROUPS: dict[Group, str] = {
    "streams": "requests at once over HTTP, beside the servers of llama-cpp-python and mlx-lm",
    "http": "one stream over HTTP, beside `stream_generate` in a process without a server",
    "prefix": "the time to the first token of two requests that begin with the same tokens",
    "gap": "the gaps of a running stream while a long prompt comes in, p99",
    "clients": "clients that ask, leave early and send bad requests, without a pause",
}


@dataclass(frozen=True, slots=True)
class Case:
    """Requests to a server. `prompt` and `output` are tokens, `streams` requests or clients at a time.

    of_process: the target of the row: the share of the rate of `stream_generate`.
    """

    group: Group
    model: str
    prompt: int
    output: int
    streams: int = 1
    peers: tuple[str, ...] = ()
    of_process: float | None = None
    dtype: str | None = None  # of all weights that are not packed, if they are converted for a peer

    @property
    def name(self) -> str:
        model = self.model.removeprefix("random:")
        match self.group:
            case "streams":
                return f"{model} {self.streams} x {self.prompt} in, {self.output} out"
            case "http":
                return f"{model} one stream, {self.prompt} in, {self.output} out"
            case "prefix":
                return f"{model} prefix of {self.prompt} tokens"
            case "gap":
                return f"{model} gap, prompt of {self.prompt} tokens"
            case "clients":
                return f"{model} {self.streams} clients"

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("group", "dtype")}


def cases(group: Group) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    match group:
        case "streams":
            yield Case(group, SMALL, 128, 64, 8, (LLAMA_CPP,))
            yield Case(group, SMALL, 16, 4, 2, (MLX_LM,), dtype="float32")
        case "http":
            yield Case(group, SMALL, 128, 64, of_process=0.90)
            yield Case(group, EMBEDDED, 128, 256, of_process=0.60)
        case "prefix":
            yield Case(group, SMALL, 1500, 4)
        case "gap":
            yield Case(group, SMALL, 2048, 96)
        case "clients":
            yield Case(group, EMBEDDED, 64, 32, 64)


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`: those of the embedded model."""
    return case.model == EMBEDDED
