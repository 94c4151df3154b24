"""lm-evaluation-harness: log-likelihoods by echo and logprobs, and answers until a stop string."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm import LLM
from tiny_llm.engine import Engine
from tiny_llm.loading.find import EMBEDDED

from ..support.serving.running import running

pytestmark = pytest.mark.clients
PAIRS = [("Once upon", " a time"), ("What is", " a purple elephant of doom"), ("", "Hello there")]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(LLM("tiny", dtype="float32")) as started:
        yield started


@pytest.fixture(scope="module")
def harness(engine: Engine) -> Iterator[Any]:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    with running({"tiny": engine}) as server:
        url = f"{server.url}/v1/completions"
        yield LocalCompletionsAPI(base_url=url, model="tiny", tokenizer=str(EMBEDDED), batch_size=2)


def instances(kind: str, *arguments: tuple[Any, ...]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, given, number) for number, given in enumerate(arguments)]


def logprobs(engine: Engine, ids: list[int]) -> tuple[list[float], list[bool]]:
    """Of each token but the first, by one forward pass: its log probability, and whether it is the best."""
    model = engine.llm.model
    logits = model(mx.array([ids]), 0, model.create_kv_cache())[0, :-1].astype(mx.float32)
    rows = mx.arange(len(ids) - 1)
    scores = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    best = mx.argmax(logits, axis=-1) == mx.array(ids[1:])
    return scores[rows, mx.array(ids[1:])].tolist(), best.tolist()


def test_log_likelihoods_are_those_of_the_model(engine: Engine, harness: Any) -> None:
    found = harness.loglikelihood(instances("loglikelihood", *PAIRS))
    for (context, rest), (score, greedy) in zip(PAIRS, found, strict=True):
        before, after = harness._encode_pair(context, rest) if context else ([harness.prefix_token_id], None)
        after = after or harness.tok_encode(rest)
        scores, best = logprobs(engine, [*before, *after])
        assert score == pytest.approx(sum(scores[-len(after) :]), rel=1e-3)
        assert greedy == all(best[-len(after) :])


def test_a_whole_text_has_a_log_likelihood(engine: Engine, harness: Any) -> None:
    text = "Once upon a time there was a small model."
    (found,) = harness.loglikelihood_rolling(instances("loglikelihood_rolling", (text,)))
    scores, _ = logprobs(engine, [harness.prefix_token_id, *harness.tok_encode(text)])
    assert found == pytest.approx(sum(scores), rel=1e-3)


def test_an_answer_ends_before_a_stop_string(harness: Any) -> None:
    free, stopped = harness.generate_until(
        instances(
            "generate_until",
            ("Once upon", {"until": [], "max_gen_toks": 12}),
            ("Once upon", {"until": [" time"], "max_gen_toks": 12}),
        )
    )
    assert stopped == free.partition(" time")[0] != free
