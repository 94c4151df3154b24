"""A model on several ranks answers as it does alone: processes of this machine, over TCP."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tiny_llm import LLM, LoadError

from ..loading.folders import write_folder
from ..support.models.checkpoints import checkpoint
from ..support.processes.child import run_python

PROMPTS = ["a few words", "b", "some of these begin alike, with words", "some of these begin alike"]
PROGRAM = """
import json, sys
from tiny_llm import LLM
if __name__ == "__main__":
    name, dtype, options, prompts = json.loads(sys.argv[1])
    llm = LLM(name, dtype=dtype, device="cpu", **options)
    results = llm.generate(prompts, max_tokens=12, logprobs=2, batch_size=3)
    print(json.dumps([[r.text, [token.logprob for token in r.logprobs]] for r in results]))
"""


def answers(name: str, dtype: str = "float32", **options: Any) -> list[tuple[str, list[float]]]:
    """The text of each answer, and the log probabilities of its tokens, from a process of its own."""
    child = run_python("-c", PROGRAM, json.dumps([name, dtype, options, PROMPTS]))
    assert child.returncode == 0, child.stderr
    return [(text, values) for text, values in json.loads(child.stdout)]


def alone(name: str, dtype: str = "float32") -> list[tuple[str, list[float]]]:
    results = LLM(name, dtype=dtype, device="cpu").generate(PROMPTS, max_tokens=12, logprobs=2, batch_size=3)
    return [(r.text, [token.logprob for token in r.logprobs]) for r in results]


def assert_equal(got: list[tuple[str, list[float]]], want: list[tuple[str, list[float]]]) -> None:
    """Greedy tokens are the same, their log probabilities within the tolerance of float32."""
    for (text, values), (text_alone, values_alone) in zip(got, want, strict=True):
        assert text == text_alone
        assert all(math.isclose(*pair, abs_tol=1e-4) for pair in zip(values, values_alone, strict=True))


def test_two_ranks_with_a_part_of_each_matrix() -> None:
    assert_equal(answers("tiny", tensor_parallel=2), alone("tiny"))


def test_two_ranks_with_half_of_the_layers() -> None:
    assert_equal(answers("tiny", pipeline_parallel=2), alone("tiny"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"tensor_parallel": 4}, {"heads": 14, "intermediate_size": 320}),  # two ranks share a head of keys
        ({"tensor_parallel": 2}, {"heads": 14, "tied": False}),
        ({"tensor_parallel": 3}, {"heads": 14, "bits": None, "intermediate_size": 200}),  # dense, and ragged
        ({"tensor_parallel": 2}, {"bits": 8, "group_size": 32}),
        ({"tensor_parallel": 2}, {"bits": 3, "group_size": 32}),
        ({"tensor_parallel": 4}, {"family": "llama", "heads": 14, "intermediate_size": 320}),
        ({"pipeline_parallel": 3}, {"tied": False}),
    ],
)
def test_heads_that_do_not_come_out_even_and_other_formats(tmp_path: Path, options, parts) -> None:
    folder = write_folder(tmp_path / "model", checkpoint(**{"family": "qwen3"} | parts), shards=2)
    assert_equal(answers(str(folder), **options), alone(str(folder)))


@pytest.mark.slow
def test_a_draft_model_that_rank_0_has_alone() -> None:
    assert_equal(answers("tiny", tensor_parallel=2, draft_model="tiny"), alone("tiny"))


@pytest.mark.slow
def test_bfloat16_within_its_tolerance() -> None:
    for (_, got), (_, want) in zip(
        answers("tiny", "bfloat16", tensor_parallel=2), alone("tiny", "bfloat16"), strict=True
    ):
        assert math.isclose(got[0], want[0], abs_tol=0.1)


IN_TURN = """
import os
from tiny_llm import LLM
from tiny_llm.errors import UnsupportedError
from tiny_llm.engine import Engine

if __name__ == "__main__":
    llm = LLM("tiny", device="cpu", dtype="float32", tensor_parallel=2)
    whole = llm.generate("Once upon", max_tokens=8).text
    for piece in llm.stream("Once upon", max_tokens=500):
        break  # and drop it
    assert llm.generate("Once upon", max_tokens=8).text == whole
    if os.fork() == 0:
        raise SystemExit(0)  # the group of its parent stays
    os.wait()
    assert llm.generate("Once upon", max_tokens=8).text == whole
    engine = Engine(llm, max_context=64)
    try:
        LLM("tiny", device="cpu", tensor_parallel=2)
    except UnsupportedError as error:
        print(error)
    engine.close()
"""


@pytest.mark.slow
def test_calls_in_turn_dropped_streams_and_forks() -> None:
    child = run_python("-c", IN_TURN)
    assert child.returncode == 0, child.stderr
    assert "tensor_parallel: got 2, expected one model on several ranks in a process" in child.stdout


FAULT = """
from tiny_llm import LLM
from tiny_llm.engine.runner import Runner
from tiny_llm.errors import RankLost

if __name__ == "__main__":
    llm = LLM("tiny", device="cpu", tensor_parallel=2)
    Runner.logits = lambda *_: 1 / 0
    for _ in range(2):
        try:
            llm.generate("Once upon", max_tokens=8)
        except RankLost as error:
            print(error)
"""


@pytest.mark.slow
def test_after_a_fault_of_rank_0_nothing_is_answered() -> None:
    child = run_python("-c", FAULT)
    assert child.returncode == 0, child.stderr
    assert (
        child.stdout.splitlines() == ["rank 0 has failed in a step: ZeroDivisionError: division by zero"] * 2
    )


NO_DRAFT = """
from tiny_llm import LLM, LoadError
from tiny_llm.distributed import launch

if __name__ == "__main__":
    start, started = launch._start, []
    launch._start = lambda *given: started.append(start(*given)) or started[-1]
    try:
        LLM("tiny", device="cpu", tensor_parallel=2, draft_model="/no/folder")
    except LoadError:
        print("started", len(started), "ended", started[0].wait(20) is not None)
"""


@pytest.mark.slow
def test_ranks_end_where_the_draft_model_does_not_load() -> None:
    child = run_python("-c", NO_DRAFT)
    assert child.returncode == 0, child.stderr
    assert "started 1 ended" in child.stdout


def test_a_name_that_does_not_exist_starts_nothing() -> None:
    with pytest.raises(LoadError, match="/no/folder: is neither"):
        LLM("/no/folder", tensor_parallel=2, device="cpu")
    with pytest.raises(LoadError, match="tiny: got 9 ranks, expected at most its 4 heads"):
        LLM("tiny", tensor_parallel=9, device="cpu")
