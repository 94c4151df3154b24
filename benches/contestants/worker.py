"""One contestant in a process of its own, which works when it is asked to and sleeps otherwise.

A process each, for two reasons: two libraries of threads, which spin between calls, never meet in one; and
the number of threads is fixed when a process starts. Turns stay strictly interleaved: the harness asks one
process, waits for its answer, and lets its threads go to sleep.

The protocol is a line of JSON in each direction: {"ask": name, ...arguments} and {"answer": ...} or {"error":
text}. What a program prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import mlx.core as mx

from benches.contestants.names import LLAMA_CPP, MLX_LM, OURS, Missing, Seat
from benches.harness.machine import ROOT
from tiny_llm.benchmark.backends import Contestant
from tiny_llm.benchmark.harness import time_once
from tiny_llm.benchmark.requests import BYTES, Request

ENDLESS = 10**6  # tokens: an answer is ended by whoever has enough of it
LONGEST_ANSWER = 256  # tokens; then it begins again, so that the context is about what a row says
IDLE_SECONDS = 2.0  # in which a process that has nothing to do ends by itself
WARM_TOKENS = 2  # of an answer, before the first that counts


class Worker:
    """The harness's end: starts the process, asks and waits."""

    def __init__(self, seat: Seat):
        self.seat = seat
        environment = {
            **os.environ,
            "TINY_LLM_THREADS": str(seat.threads),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benches.contestants.worker", json.dumps(asdict(seat))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            self._read()  # it is ready, or says why it cannot be
        except BaseException:
            self.close()
            raise

    def ask(self, what: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ask": what, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process and wait until its memory is free again; what it is asked to do is given up."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, with a request unread
            process.stdin.close()
        try:
            process.wait(IDLE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.seat.program}: its process ended with code {self._process.wait()}")
        reply = json.loads(line)
        if "missing" in reply:
            raise Missing(reply["missing"])
        if "error" in reply:
            raise RuntimeError(f"{self.seat.program}: {reply['error']}")
        return reply["answer"]


@dataclass(slots=True)
class _Answer:
    """One that goes on from sample to sample, and how many tokens samples have taken of it."""

    prompt: int
    tokens: Iterator[int]
    taken: int = 0


class Desk:
    """The worker's end: what it can be asked."""

    def __init__(self, contestants: dict[str, Contestant], vocabulary: int, bytes_held: int):
        self._contestants = contestants
        self._vocabulary = vocabulary
        self._bytes_held = bytes_held
        self._answers: dict[str, _Answer] = {}

    def weights(self) -> int:
        """Bytes of the weights as they are held."""
        return self._bytes_held

    def scores(self, who: str, prompt: int) -> list[float]:
        """The scores behind the last token of a prompt."""
        found: Any = self._contestants[who].scores(self._request(prompt)).astype(mx.float32).tolist()
        return found  # type: ignore[no-any-return]

    def prefill(self, who: str, prompt: int) -> float:
        """Seconds from a prompt to the first token."""
        for _ in self._contestants[who].start(self._request(WARM_TOKENS, WARM_TOKENS)):
            pass  # threads awake, code and weights where they will be
        answer = self._contestants[who].start(self._request(prompt, 1))
        return time_once(lambda: next(answer))[1]

    def read(self, who: str, prompt: int) -> None:
        """Begin an answer: the prompt is read, and the first tokens are there."""
        self._answers[who] = _Answer(prompt, self._contestants[who].start(self._request(prompt)))
        for _ in range(1 + WARM_TOKENS):
            next(self._answers[who].tokens)

    def decode(self, who: str, tokens: int) -> float:
        """Seconds for each of the next tokens of that answer."""
        if self._answers[who].taken + tokens > LONGEST_ANSWER:
            self.read(who, self._answers[who].prompt)
        answer = self._answers[who]
        answer.taken += 1 + tokens
        next(answer.tokens)  # after a rest of this process
        return time_once(lambda: [next(answer.tokens) for _ in range(tokens)])[1] / tokens

    def _request(self, prompt: int, output: int = ENDLESS) -> Request:
        ids = random.Random(prompt).choices(range(BYTES, self._vocabulary), k=prompt)
        return Request(tuple(ids), output)


def _desk(seat: Seat) -> Desk:
    """Load the weights and build the program of this process."""
    from benches.contestants.shared_weights import load_twin, sizes

    if seat.program == LLAMA_CPP:
        from benches.contestants.llama_cpp import llama_cpp

        config = sizes(seat.model)
        contestant = llama_cpp(seat.file, seat.threads, seat.context)
        return Desk({LLAMA_CPP: contestant}, config.vocab_size, os.path.getsize(seat.file))
    from benches.contestants.models import bytes_of, forms_of_ours, mlx_lm

    mx.set_default_device(mx.cpu)
    checkpoint, dtype = load_twin(seat.model), getattr(mx, seat.dtype)
    forms = {
        OURS: lambda: forms_of_ours(checkpoint, dtype, seat.context),
        MLX_LM: lambda: mlx_lm(checkpoint, dtype),
    }[seat.program]()
    return Desk(forms, checkpoint.config.vocab_size, bytes_of(checkpoint))


def _serve(seat: Seat) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which then ends this process
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no reply

    def reply(**given: Any) -> None:
        replies.write(json.dumps(given) + "\n")
        replies.flush()

    try:
        desk = _desk(seat)
    except Missing as reason:
        reply(missing=str(reason))
        return
    reply(answer=None)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply(answer=getattr(desk, request.pop("ask"))(**request))
        except Exception as error:
            reply(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _serve(Seat(**json.loads(sys.argv[1])))
