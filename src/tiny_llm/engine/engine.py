"""Plan, run, publish the step before, sample: the loop that answers all requests of a model."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from ..cache.pages import PagePool
from ..checks.types import check_function, check_number, check_size, check_type
from ..errors import ArgumentError, EngineFailed, RankLost, calling
from ..generation.loaded import LoadedModel
from ..models.invariance import check_invariant
from ..runtime.device import check_process, is_forked, on_device
from ..runtime.threads import run_in_thread
from ..scheduler import Plan, Scheduler
from ..scheduler.budget import PrefillBudget
from .answers import Admission, Answers
from .drafts import DRAFT_TOKENS, ModelDrafts, draft_llm, relative_cost
from .mailbox import Mailbox
from .ranks import keeps_prefixes, run_model
from .request import EngineRequest, EventReason, Handle, Timings
from .sizes import MAX_RUNNING, MAX_WAITING, PAGE_SIZE, STEP_TOKENS, PoolSize, pool_size
from .statistics import EngineStatistics, Recorder
from .steps import DraftModel, Steps

LOG = logging.getLogger(__name__)
logging.getLogger("tiny_llm").addHandler(logging.NullHandler())  # who has no logs gets the error of an answer
IDLE_BEAT = 0.5  # seconds. An idle engine shows that it is alive, and ends requests past their deadline.
LOST_SECONDS = 1.0  # for the engine's thread to notice that another process is lost


class Engine(AbstractContextManager["Engine"]):
    """Answers many requests at once; each gets what it would get alone.

        >>> from tiny_llm import LLM
        >>> from tiny_llm.engine import Engine, EngineRequest
        >>> with Engine(LLM("tiny")) as engine:
        ...     prompt = engine.llm.tokenizer.encode("Once upon a time")
        ...     handle = engine.submit(EngineRequest(prompt_ids=prompt))
        ...     text = "".join(event.text for event in handle)
        >>> text.startswith(", there")
        True

    llm: an `LLM`, or the name of a model.
    kv_memory: bytes for the keys and values of all requests; by default enough for eight of the longest ones,
        and at most a fifth of the machine's memory. Allocated at once.
    max_context: maximum number of tokens of a prompt and its answer; by default that of the model.
    step_tokens: the budget of a step. By default 512, and beside running answers so many that a step takes at
        most about three times as long as one without prompts, by the times of earlier steps.
        vLLM: max_num_batched_tokens.
    max_running, max_waiting: answers at a time, and requests that may wait; a further one is a `QueueFull`.
        vLLM: max_num_seqs for the first.
    page_size: tokens of a page; prompts that begin alike share whole pages, and copy the rest.
    prefix_cache: keep the pages of finished requests until they are needed, for prompts that begin alike.
    lookup: draft tokens from the text so far, and verify them in one step; the answers stay the same.
    grows: allocate pages when they are first used, instead of all at once; and dense caches instead of pages
        where these have no kernel: on a GPU, and for a model without FlashAttention.
    batch_invariant: the bits of an answer's logits do not depend on other requests. Slower; CPU only.
    draft: a small model with the same vocabulary, or its name, that drafts up to `draft_tokens` tokens a step
        where that pays: greedy answers stay the same, sampled ones keep their distribution.

    May be used from any thread, and from asyncio. A `with` block ends with `close()`.
    """

    def __init__(
        self,
        llm: LoadedModel | str = "tiny",
        *,
        kv_memory: int | None = None,
        max_context: int | None = None,
        step_tokens: int | None = None,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
        page_size: int = PAGE_SIZE,
        prefix_cache: bool = True,
        lookup: bool = True,
        grows: bool = False,
        batch_invariant: bool = False,
        draft: LoadedModel | str | None = None,
        draft_tokens: int = DRAFT_TOKENS,
    ):
        sizes = {"max_running": max_running, "max_waiting": max_waiting}
        sizes |= {"page_size": page_size, "draft_tokens": draft_tokens}
        given = {"step_tokens": step_tokens, "kv_memory": kv_memory, "max_context": max_context}
        sizes |= {name: size for name, size in given.items() if size is not None}
        for name, size in sizes.items():
            check_size("Engine", name, size)
        options = {"grows": grows, "prefix_cache": prefix_cache, "batch_invariant": batch_invariant}
        for name, flag in (options | {"lookup": lookup}).items():
            check_type("Engine", name, flag, bool, "a bool")
        self.llm = LoadedModel.load("Engine", llm) if isinstance(llm, str) else llm
        check_type("Engine", "llm", self.llm, LoadedModel, "an LLM or its name")
        if max_context is not None and max_context > self.llm.context:
            expected = f"at most the model's {self.llm.context}"
            raise ArgumentError("Engine", "max_context", max_context, expected)
        context = max_context or self.llm.context
        self._draft_llm = None if draft is None else draft_llm(draft, self.llm, context, draft_tokens)
        with on_device(self.llm.device):
            if batch_invariant:
                check_invariant("Engine", self.llm.model)
            options["prefix_cache"] &= keeps_prefixes(self.llm, grows)
            small = None if self._draft_llm is None else self._draft_llm.model
            self.pool: PoolSize = pool_size(self.llm.model, context, page_size, kv_memory, small)
        self.context = min(context, self.pool.tokens)
        self._pages = PagePool(self.pool.num_pages, page_size)
        self._scheduler = Scheduler(
            self._pages,
            max(STEP_TOKENS, max_running) if step_tokens is None else step_tokens,
            max_running,
            max_waiting + max_running,  # `submit` counts; those that lose their pages wait, too
            prefix_cache=options["prefix_cache"],
            model=self.llm.name,
        )
        self._budget = PrefillBudget()
        self._bound = self._budget.prompt_tokens if step_tokens is None else None
        drafts = None if small is None else ModelDrafts(draft_tokens, relative_cost(small, self.llm.model))
        self._admission = Admission(self.llm, self.context, lookup, drafts)
        self._recorder = Recorder()
        self._answers = Answers(self._scheduler, self._recorder)
        self._options = options
        self._mailbox = Mailbox(max_waiting)  # all of the above belongs to the engine's thread
        self._ready, self._stopped = threading.Event(), threading.Event()
        atexit.register(self.close)  # a thread that computes while Python ends would crash it
        self._start()

    def submit(self, request: EngineRequest) -> Handle:
        """Queue a request.

        ArgumentError for one that can never run; QueueFull if too many wait; GrammarQueueBusy for a slow
        new grammar while others wait; Draining after `drain` or `close`; EngineFailed after a fault;
        UnsupportedError in a forked child.
        """
        check_type("Engine.submit", "request", request, EngineRequest, "an EngineRequest")
        check_process()
        state, answer = self._admission.admit(request, time.monotonic(), self._mailbox.cancel)
        with calling("Engine.submit", choices="n"):
            self._mailbox.submit(state, answer, self._scheduler)
        return answer.handle

    def statistics(self) -> EngineStatistics:
        """The present state, and totals since the start; while a step runs, some may be of after it."""
        return self._recorder.statistics(self._scheduler, self._pages, self._mailbox.unread)

    def observe(self, callback: Callable[[Timings], None]) -> None:
        """Call `callback` with the timings of each ended answer, in the engine's thread: it must not wait."""
        check_function("Engine.observe", "callback", callback)
        self._recorder.observers.append(callback)

    def alive(self, max_age: float) -> bool:
        """Whether the engine has made a step, or rested, within the last `max_age` seconds."""
        check_number("Engine.alive", "max_age", max_age)
        return not self.failed and time.monotonic() - self._recorder.last_step_at <= max_age

    @property
    def failed(self) -> bool:
        """Whether the engine has stopped after a fault; it does not start again."""
        return self._mailbox.failure is not None

    def drain(self, timeout: float | None = None) -> bool:
        """Accept no new requests, and wait until all have ended; False if some have not within `timeout`."""
        return self._mailbox.drain(self._answers, timeout)

    def close(self) -> None:
        """Cancel all requests, accept no new ones, and free the pages; nothing in a forked child."""
        if not self.stop():
            return
        if self._thread is threading.current_thread():
            self._end_all("cancelled")
        else:
            self._stopped.wait()

    def stop(self) -> bool:
        """Like `close`, without waiting: for finalizers, in any thread. False in a forked child."""
        if is_forked():
            return False
        self._mailbox.close()
        return True

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        """Start the thread of the steps, and wait until its arrays are there."""
        run_in_thread(partial(_serve, [self]), self._stopped)
        try:
            self._ready.wait()
        except BaseException:  # Ctrl-C: nobody has the engine
            self.stop()
            raise
        if self._mailbox.failure is not None:
            raise self._mailbox.failure

    def _make_steps(self) -> Steps:
        with on_device(self.llm.device):
            runner = run_model(self.llm, self.pool, self._options, self._lose)
            if self._draft_llm is None:
                return Steps(self.llm, runner)
            small, grows = self._draft_llm.model, self._options["grows"]
            return Steps(self.llm, runner, DraftModel(small, self.pool, self.llm.model, grows=grows))

    def _serve(self) -> None:
        """Steps until `close`, in the thread that all arrays belong to."""
        self._thread = threading.current_thread()
        try:
            self._steps = self._make_steps()
            self._ready.set()
            while (plan := self._next_plan()) is not None:
                begin = time.monotonic()
                if self._step(plan):
                    self._budget.learn(plan, time.monotonic() - begin)
            self._end_all("cancelled")
            del self._steps
        except BaseException as error:
            self._give_up(error)

    def _next_plan(self) -> Plan | None:
        """Wait for a step with work in it; None after `close`."""
        while not self._mailbox.closed:
            plan = self._plan(time.monotonic())
            if plan.rows:
                return plan
            self._mailbox.wait(IDLE_BEAT)
        return None

    def _plan(self, now: float) -> Plan:
        """The step at the time `now`, which may have no work."""
        self._mailbox.read(self._answers)
        self._recorder.last_step_at = now
        plan = self._scheduler.plan(now, self._bound)
        for state in plan.expired:
            self._answers.end(state, "deadline")
        for state in plan.started:
            self._answers.note_start(state, now)
        if not plan.rows:  # there is no step beside which to do it
            self._steps.rest()
            self._answers.publish()
            self._mailbox.wake()
        return plan

    def _plan_ahead(self, plan: Plan) -> Plan | None:
        """The step after `plan`, before its tokens are known; None if they, or somebody new, decide."""
        if self._mailbox.unread or self._answers.may_draft(plan):
            return None
        return self._scheduler.plan_ahead()

    def _end_all(self, reason: EventReason, error: Exception | None = None) -> None:
        """End all requests that have come."""
        self._mailbox.read(self._answers)
        self._answers.end_all(reason, error)
        self._mailbox.wake()

    def _step(self, plan: Plan) -> bool:
        """Whether it was computed."""
        try:
            drawn = self._steps.compute(plan, self._answers, partial(self._plan_ahead, plan))
        except Exception as error:
            LOG.exception("a step failed")
            if self.llm.leader is not None:  # the other processes are in the middle of it
                raise self.llm.leader.fault(error) from error
            self._recover(plan, error)
            return False
        self._answers.take(plan, drawn, time.monotonic())
        return True

    def _recover(self, plan: Plan, error: Exception) -> None:
        """After a step that failed: end the running requests, and go on with new pages."""
        traceback.clear_frames(error.__traceback__)  # they hold the old pages
        self._scheduler.discard(plan)
        self._answers.end_all("error", error, waiting=False)
        self._scheduler.forget_pages()
        self._steps.forget()

    def _lose(self, lost: RankLost) -> bool:
        """A process with a share of the model is lost. Whether the engine's thread waits for it in MLX."""
        if is_stuck := not self._stopped.wait(LOST_SECONDS):
            self._give_up(lost)
            self._stopped.set()
        return is_stuck

    def _give_up(self, error: BaseException) -> None:
        if not self._mailbox.fail(error):  # another thread came first
            return
        LOG.critical("the engine stopped", exc_info=error)
        self._end_all("error", error if isinstance(error, Exception) else EngineFailed())
        self._ready.set()


def _serve(engines: list[Engine]) -> None:
    """What the engine's thread does. It keeps no engine alive after its end."""
    engine = engines.pop()
    engine._serve()
    atexit.unregister(engine.close)
