"""tiny_llm without a server, in the process of the benchmark: what its server is compared with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tiny_llm import LLM, Sampling
from tiny_llm_tools.benchmark.serving.client import ROUTES, Client, ServeRequest


class InProcess:
    """`LLM` of a folder, with the type that the server chooses, too."""

    def __init__(self, folder: Path):
        self._llm = LLM(folder, offline=True)

    def text(self, request: ServeRequest) -> str:
        return self._llm.generate(str(request.prompt), _sampling(request)).text

    def seconds_per_token(self, request: ServeRequest) -> float:
        """Of the tokens after the first, by `stream_generate`."""
        stream = self._llm.stream(str(request.prompt), _sampling(request))
        for _ in stream:
            pass
        return 1 / stream.result.statistics.decode_tokens_per_second


def text_of(client: Client, request: ServeRequest) -> str:
    """The whole answer of a server."""
    body = json.loads(client.body(request)) | {"stream": False}
    del body["stream_options"]

    async def ask() -> str:
        async with client.site.request(
            "POST", ROUTES[client.endpoint], json.dumps(body).encode()
        ) as response:
            answer = json.loads(await response.body())
            text: str = answer["choices"][0]["text"]
            return text

    return asyncio.run(ask())


def differing(client: Client, model: InProcess, requests: list[ServeRequest]) -> float:
    """The share of requests whose greedy answers differ."""
    return sum(text_of(client, each) != model.text(each) for each in requests) / len(requests)


def _sampling(request: ServeRequest) -> Sampling:
    return Sampling(max_tokens=request.output_tokens, ignore_eos=True)
