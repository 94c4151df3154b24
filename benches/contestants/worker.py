"""A backend in a process of its own, which runs on request and sleeps otherwise.

Two reasons: thread pools of two libraries, which spin between calls, never share a process; and the number
of threads is fixed when a process starts. Backends stay strictly interleaved: the harness sends one request
at a time and waits for the answer.

The protocol is a line of JSON in each direction: {"method": name, ...arguments}, then {"result": ...} or
{"error": text}. Output of libraries goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import mlx.core as mx

from benches.cases.models import model_shape
from benches.harness.machine import ROOT
from benches.names import LLAMA_CPP, MLX_LM, OPENVINO, TINY_LLM, Missing
from tiny_llm_tools.benchmark.backends import BenchBackend
from tiny_llm_tools.benchmark.clock import time_once
from tiny_llm_tools.benchmark.requests import BYTE_TOKENS, BenchRequest

ENDLESS = 10**6  # output tokens of a request that is abandoned later
MAX_OUTPUT_TOKENS = (
    256  # tokens; then decoding restarts after the prompt, so that the context stays near that of the row
)
CLOSE_SECONDS = 2.0  # an idle process ends within this time
WARM_TOKENS = 2  # output tokens before the first that counts
Timed = Callable[[Callable[[], Any]], tuple[Any, float]]  # runs a call as `time_once` does


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What one process runs: a backend, a model, the type of activations."""

    backend: str  # TINY_LLM, LLAMA_CPP, OPENVINO or MLX_LM
    model: str
    dtype: str
    threads: int
    context: int  # maximum length of a sequence
    file: str = ""  # GGUF file for llama.cpp


class Worker:
    """The client: starts the process, a `module` that calls `serve`, sends requests and waits for results."""

    def __init__(self, options: WorkerOptions, module: str = "benches.contestants.worker"):
        self.options = options
        environment = {
            **os.environ,
            "TINY_LLM_THREADS": str(options.threads),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            self._read()  # a result when the model is loaded, or the reason why it cannot be
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process and wait until its memory is free; a running request is abandoned."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended before it read a request
            process.stdin.close()
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{self.options.backend}: its process ended with code {code}")
        reply = json.loads(line)
        if "missing" in reply:
            raise Missing(reply["missing"])
        if "error" in reply:
            raise RuntimeError(f"{self.options.backend}: {reply['error']}")
        return reply["result"]


@dataclass(slots=True)
class _Decoding:
    """An output that continues from sample to sample, and the number of its tokens so far."""

    prompt: int
    tokens: Iterator[int]
    taken: int = 0


class Service:
    """The methods of a worker process. `name` is one of its backends, `prompt` a number of tokens."""

    def __init__(self, backends: dict[str, BenchBackend], vocabulary: int, weight_bytes: int):
        self._backends = backends
        self._vocabulary = vocabulary
        self._weight_bytes = weight_bytes
        self._decodings: dict[str, _Decoding] = {}

    def weights(self) -> int:
        """Bytes of the weights in memory."""
        return self._weight_bytes

    def logits(self, name: str, prompt: int) -> list[float]:
        """The logits after the last token of a prompt."""
        found: Any = self._backends[name].logits(self._request(prompt)).astype(mx.float32).tolist()
        return found  # type: ignore[no-any-return]

    def prefill(self, name: str, prompt: int, timed: Timed = time_once) -> float:
        """Seconds from a prompt to the first token."""
        for _ in self._backends[name].generate(self._request(WARM_TOKENS, WARM_TOKENS)):
            pass  # wake the threads, and load code and weights
        output = self._backends[name].generate(self._request(prompt, 1))
        return timed(lambda: next(output))[1]

    def start_decoding(self, name: str, prompt: int) -> None:
        """Prefill a prompt and decode the first tokens."""
        self._decodings[name] = _Decoding(prompt, self._backends[name].generate(self._request(prompt)))
        for _ in range(1 + WARM_TOKENS):
            next(self._decodings[name].tokens)

    def decode(self, name: str, tokens: int, timed: Timed = time_once) -> float:
        """Seconds per token of the next tokens of that output."""
        if self._decodings[name].taken + tokens > MAX_OUTPUT_TOKENS:
            self.start_decoding(name, self._decodings[name].prompt)
        decoding = self._decodings[name]
        decoding.taken += 1 + tokens
        next(decoding.tokens)  # untimed: the first after a pause of this process
        return timed(lambda: [next(decoding.tokens) for _ in range(tokens)])[1] / tokens

    def _request(self, prompt: int, output: int = ENDLESS) -> BenchRequest:
        ids = random.Random(prompt).choices(range(BYTE_TOKENS, self._vocabulary), k=prompt)
        return BenchRequest(tuple(ids), output)


def build_service(options: WorkerOptions) -> Service:
    """Load the weights and build the backends of this process."""
    if options.backend == LLAMA_CPP:
        from benches.contestants.llama_cpp import llama_cpp

        vocabulary = model_shape(options.model).vocab_size
        backends = llama_cpp(options.file, options.threads, options.context)
        return Service(backends, vocabulary, os.path.getsize(options.file))
    from benches.contestants.models import bytes_of, mlx_lm, tiny_llm
    from benches.contestants.openvino import openvino
    from benches.contestants.shared_weights import load_shared

    mx.set_default_device(mx.cpu)
    checkpoint, dtype = load_shared(options.model), getattr(mx, options.dtype)
    backends = {
        TINY_LLM: lambda: tiny_llm(checkpoint, dtype, options.context),
        OPENVINO: lambda: openvino(checkpoint, options.threads),
        MLX_LM: lambda: mlx_lm(checkpoint, dtype),
    }[options.backend]()
    return Service(backends, checkpoint.config.vocab_size, bytes_of(checkpoint))


def serve(build: Callable[[], Any]) -> None:
    """Answer requests with the methods of what `build` returns, until the harness leaves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the harness, which then ends this process
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is not a reply

    def reply(**fields: Any) -> None:
        replies.write(json.dumps(fields) + "\n")
        replies.flush()

    try:
        service = build()
    except Missing as reason:
        reply(missing=str(reason))
        return
    reply(result=None)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply(result=getattr(service, request.pop("method"))(**request))
        except Exception as error:
            reply(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve(lambda: build_service(WorkerOptions(**json.loads(sys.argv[1]))))
