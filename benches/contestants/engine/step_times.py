"""How long the steps of an engine take beside other engines on the machine, as `StepTimes` in JSON.

`python -m benches.contestants.engine.step_times MODEL THREADS`, as many at once as there shall be replicas.
It prints "ready", and measures after a line of input, when all are ready.
"""

import json
import statistics
import sys
import time

from benches.contestants.http.replicas import prompt_ids
from tiny_llm import LLM
from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.sampling.params import Sampling

ROWS = (1, 2, 4, 8)
PROMPT, SHORT, LONG = 64, 4, 20  # tokens
PROMPTS = (8, 16, 32, 64, 128, 256)
REPEATS = 3


def seconds(engine: Engine, number: int, streams: int, prompt: int, output: int) -> float:
    """Until answers to new prompts are complete."""
    start = time.perf_counter()
    requests = [
        EngineRequest(
            prompt_ids=prompt_ids(1000 * number + stream, prompt),
            sampling=Sampling(temp=1.0, max_tokens=output),
        )
        for stream in range(streams)
    ]
    for handle in [engine.submit(request) for request in requests]:
        for _ in handle:
            pass
    return time.perf_counter() - start


def measure(model: str, threads: int) -> dict[str, object]:
    with Engine(LLM(model, offline=True, threads=threads), lookup=False) as engine:
        numbers = iter(range(10**6))
        seconds(engine, next(numbers), 2, PROMPT, SHORT)
        print("ready", flush=True)
        sys.stdin.readline()
        decode = {}
        for rows in ROWS:
            spans = [
                seconds(engine, next(numbers), rows, PROMPT, LONG)
                - seconds(engine, next(numbers), rows, PROMPT, SHORT)
                for _ in range(REPEATS)
            ]
            decode[rows] = statistics.median(spans) / (LONG - SHORT)
        prefill = {
            prompt: statistics.median(seconds(engine, next(numbers), 1, prompt, 1) for _ in range(REPEATS))
            for prompt in PROMPTS
        }
    return {"decode": decode, "prefill": prefill}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
