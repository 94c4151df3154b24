"""nano-vllm's workload, and our scheduler on it without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import Plan, RequestState, Scheduler

# Its bench.py and defaults: the lengths follow from the seed and the order of the calls.
REQUESTS, LENGTHS, IDS = 256, (100, 1024), 10_000
MAX_RUNNING, STEP_TOKENS, PAGE_SIZE = 512, 16_384, 256
PAGES = (150, 200, 400, 2000)
WATERMARKS = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1))
WATERMARK = Fraction(1, 4)  # of the engine


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule cost."""

    steps: int
    prefill_tokens: int
    recomputed_tokens: int
    preemptions: int
    prompt_tokens: int
    output_tokens: int
    decode_batch: float  # decoded tokens in a step with any, on average


class WrongCounts(Exception):
    """A request got another number of tokens than it asked for."""


def requests() -> list[RequestState]:
    """256 prompts of random tokens, with the lengths of their answers."""
    random = Random(0)
    prompts = [[random.randint(0, IDS) for _ in range(random.randint(*LENGTHS))] for _ in range(REQUESTS)]
    return [
        RequestState(str(number), prompt, random.randint(*LENGTHS)) for number, prompt in enumerate(prompts)
    ]


def run(pages: int, watermark: Fraction = WATERMARK) -> Counts:
    """All requests, queued at once, to their last token."""
    scheduler = Scheduler(
        PagePool(pages, PAGE_SIZE), STEP_TOKENS, MAX_RUNNING, max_waiting=REQUESTS, watermark=watermark
    )
    states = requests()
    for state in states:
        scheduler.add(state)
    decoded = steps_with_decode = 0
    random = Random(1)
    while scheduler.running or scheduler.waiting:
        plan = step(scheduler, lambda: random.randint(0, IDS))
        batch = sum(not row.is_prefill for row in plan.rows)
        decoded += batch
        steps_with_decode += batch > 0
    check_lengths(states)
    counters = scheduler.counters
    return Counts(
        counters.steps,
        counters.prefill_tokens,
        counters.recomputed_tokens,
        counters.preemptions,
        sum(len(state.prompt_ids) for state in states),
        sum(state.num_output for state in states),
        decoded / steps_with_decode,
    )


def check_lengths(states: Iterable[RequestState]) -> None:
    """Each request got exactly the tokens that it asked for; else the counts mean nothing."""
    wrong = {state.id: state.num_output for state in states if state.num_output != state.max_tokens}
    if wrong:
        raise WrongCounts(f"run: answers of a wrong length, by request: {wrong}")


def step(scheduler: Scheduler, token: Callable[[], int]) -> Plan:
    """Plan a step, give each row with logits a token, and finish what is complete."""
    plan = scheduler.plan()
    tokens = {row.state: (token(),) for row in plan.rows if row.logits}
    scheduler.commit(plan, tokens)
    for state in tokens:
        if state.num_output == state.max_tokens:
            scheduler.finish(state, "length")
    return plan


class SteadyState:
    """So many running requests that a new one comes whenever one ends; `step` is what is timed."""

    PROMPT, ANSWER, PAGE_SIZE = 128, 512, 64

    def __init__(self, running: int):
        pages = running * -(-(self.PROMPT + self.ANSWER) // self.PAGE_SIZE)
        self.scheduler = Scheduler(PagePool(2 * pages, self.PAGE_SIZE), max_running=running)
        self._running = running
        self._random = Random(0)
        for _ in range(running):  # out of phase, as if they had come one after another
            self._add(self._random.randint(1, self.ANSWER))
        while self.scheduler.waiting:
            self.step()

    def step(self) -> None:
        """One step, and new requests for those that ended."""
        step(self.scheduler, lambda: 7)
        for _ in range(self._running - len(self.scheduler.running) - len(self.scheduler.waiting)):
            self._add(self.ANSWER)

    def _add(self, answer: int) -> None:
        prompt = [self._random.randint(0, IDS) for _ in range(self.PROMPT)]
        self.scheduler.add(RequestState("", prompt, answer))
