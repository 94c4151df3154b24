"""From the logits of a step to the next tokens of its answers."""

from collections.abc import Mapping, Sequence

import mlx.core as mx

from ..sampling.rows import Drawn, RowSampler, sample_rows, verify_rows
from ..scheduler import Plan, RequestState

# For each request that has logits, its answers: several at the end of a prompt with several answers.
Samplers = dict[RequestState, list[tuple[RequestState, RowSampler, int | None]]]


def has_grammar(samplers: Samplers) -> bool:
    """Whether an answer has to match a grammar."""
    return any(sampler.grammar is not None for each in samplers.values() for _, sampler, _ in each)


def sample(
    logits: mx.array, plan: Plan, samplers: Samplers, draft_probs: Mapping[RequestState, mx.array | None]
) -> dict[RequestState, list[Drawn]]:
    """The next tokens of each answer: accepted drafts, then one more.

    A sampler comes with the number of most probable tokens that are wanted; None: no log probabilities.
    `draft_probs` has the distributions that drafts were drawn from, if they were.
    """
    states: list[RequestState] = []
    rows: list[RowSampler] = []
    drafts: list[Sequence[int]] = []
    logprobs: list[int | None] = []
    positions: list[int] = []
    offset = 0
    for row in plan.rows:
        for state, sampler, count in samplers.get(row.state, ()) if row.logits else ():
            states.append(state)
            rows.append(sampler)
            drafts.append(list(row.drafts))
            logprobs.append(count)
            positions += range(offset, offset + row.logits)
        offset += row.logits
    if not states:
        mx.eval(logits)
        return {}
    if len(positions) != offset or positions != list(range(offset)):
        logits = logits[mx.array(positions)]
    if not any(drafts):
        wanted = None if logprobs.count(None) == len(logprobs) else logprobs
        return {s: [drawn] for s, drawn in zip(states, sample_rows(logits, rows, wanted), strict=True)}
    probs = [draft_probs.get(state) for state in states]
    return dict(zip(states, verify_rows(logits, rows, drafts, logprobs, probs), strict=True))
