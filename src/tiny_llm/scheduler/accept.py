"""Checks of the tokens that a forward pass gave, before any request changes."""

from collections.abc import Iterable, Mapping, Sequence

from ..errors import ArgumentError
from .plan import Row
from .request import RequestState, Status


def check_accepted(
    committed: Iterable[tuple[Row, Sequence[RequestState]]], tokens: Mapping[RequestState, Sequence[int]]
) -> None:
    """Tokens for each running request whose row has logits, and for no other one."""
    expected = 0
    for row, states in committed:
        if row.logits:
            expected += len(states)
            for state in states:
                _check_tokens(row, state, tokens.get(state, ()))
    running = [state for state in tokens if state.status is not Status.FINISHED]
    if len(running) != expected:
        raise _refusal(f"tokens of {len(running)} requests", f"those of {expected} rows with logits")


def _check_tokens(row: Row, state: RequestState, new: Sequence[int]) -> None:
    if state.choices > 1:
        raise _refusal(f"{state.choices} answers in request {state.id}", "a call of fork before")
    if not 1 <= len(new) <= row.logits:
        raise _refusal(
            f"{len(new)} tokens for request {state.id}", f"1 to {row.logits}, the number of its logits"
        )
    if len(new) > 1 and list(new[:-1]) != list(row.drafts[: len(new) - 1]):
        raise _refusal(
            f"{list(new)} for request {state.id}", f"a beginning of its drafts {list(row.drafts)} and a token"
        )
    if state.num_output + len(new) > state.max_tokens:
        raise _refusal(
            f"token {state.num_output + len(new)} of request {state.id}",
            f"at most max_tokens, {state.max_tokens}",
        )


def _refusal(got: str, expected: str) -> ArgumentError:
    return ArgumentError("Scheduler.commit", "tokens", got, expected)
