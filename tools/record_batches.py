"""Records the steps of the engine that the book draws: python -m tools.record_batches writes trace.json.

Eight requests arrive together at an engine with four places and the built-in model, once with whole prompts
and once with a small budget of tokens. The rows of a step depend on the rules of the scheduler only, so
several runs have the same steps. The time of a step is the processor time of one thread, which other programs
do not stretch, and the shortest of all runs.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benches.harness.machine import cpu_model
from tiny_llm import LLM
from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.runtime.installation import describe_cpu
from tiny_llm.sampling.params import Sampling
from tiny_llm.scheduler import Plan
from tiny_llm_tools.benchmark.requests import BYTE_TOKENS

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "book" / "widgets" / "batch_timeline" / "trace.json"
PLACES, CONTEXT = 4, 1024
# Tokens of prompt and answer. One prompt is long, and comes while others decode.
SIZES = ((24, 48), (40, 12), (16, 30), (32, 20), (600, 10), (24, 24), (48, 16), (20, 28))
LONG = 4
BUDGETS = {"continuous": CONTEXT, "chunked": 64}
Step = dict[str, Any]


class RecordedEngine(Engine):
    """Notes the rows of each step, and the processor time from the end of the step before to its end."""

    def __init__(self, *arguments: Any, **options: Any):
        self.steps: list[Step] = []
        super().__init__(*arguments, **options)

    def run(self, requests: Sequence[EngineRequest]) -> list[Step]:
        """Answer requests that arrive together; the steps."""
        self.steps = []
        with self._mailbox._changed:  # no step begins before the last one has arrived
            handles = [self.submit(request) for request in requests]
            self._ended_at = time.process_time()
        for handle in handles:
            for _ in handle:
                pass
        return self.steps

    def _step(self, plan: Plan) -> bool:
        rows = [[int(row.state.id), len(row.token_ids), int(not row.is_prefill)] for row in plan.rows]
        done = super()._step(plan)
        now = time.process_time()
        self.steps.append({"ms": 1000 * (now - self._ended_at), "rows": rows})
        self._ended_at = now
        return done


def record(budget: int, repeats: int) -> list[Step]:
    """The steps under a budget of tokens, each with its shortest time."""
    numbers = random.Random(0)
    with RecordedEngine(
        LLM("tiny", dtype="bfloat16"),
        max_context=CONTEXT,
        step_tokens=budget,
        max_running=PLACES,
        prefix_cache=False,
        lookup=False,
    ) as engine:
        ids = range(BYTE_TOKENS, engine.llm.model.vocab_size)
        requests = [
            EngineRequest(
                prompt_ids=numbers.choices(ids, k=prompt),
                sampling=Sampling(max_tokens=output, ignore_eos=True),
                id=str(number),
            )
            for number, (prompt, output) in enumerate(SIZES)
        ]
        steps = engine.run(requests)
        for _ in range(repeats - 1):
            again = engine.run(requests)
            assert [step["rows"] for step in again] == [step["rows"] for step in steps]
            for step, other in zip(steps, again, strict=True):
                step["ms"] = min(step["ms"], other["ms"])
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20, metavar="N", help="runs (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=TARGET, metavar="FILE")
    options = parser.parse_args()
    os.environ["TINY_LLM_THREADS"] = "1"  # waiting threads spin, which would count
    trace = {
        "command": "python -m tools.record_batches",
        "machine": f"{cpu_model()}, {describe_cpu()['active']}, one thread",
        "model": "the built-in model in bfloat16",
        "repeats": options.repeats,
        "places": PLACES,
        "long": LONG,
        "requests": [
            {"name": chr(ord("A") + number), "prompt": prompt, "output": output}
            for number, (prompt, output) in enumerate(SIZES)
        ],
        "runs": {
            name: {"budget": budget, "steps": record(budget, options.repeats)}
            for name, budget in BUDGETS.items()
        },
    }
    for run in trace["runs"].values():
        for step in run["steps"]:
            step["ms"] = round(step["ms"], 3)
    options.output.write_text(as_text(trace))
    return 0


def as_text(trace: dict[str, Any]) -> str:
    """JSON with a line for each step."""
    lines = []
    for key, value in trace.items():
        if key != "runs":
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
            continue
        runs = []
        for name, run in value.items():
            steps = ",\n".join(f"   {json.dumps(step)}" for step in run["steps"])
            runs.append(f'  {json.dumps(name)}: {{"budget": {run["budget"]}, "steps": [\n{steps}\n  ]}}')
        lines.append(' "runs": {\n' + ",\n".join(runs) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
