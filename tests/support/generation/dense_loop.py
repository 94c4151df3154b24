"""A scheduler and a runner of dense caches, stepped by hand, on a model that remembers its calls."""

import mlx.core as mx
import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.course.model import load_model
from tiny_llm.engine.dense import DenseRunner
from tiny_llm.generation.tokens import TokenSampler, cached_tokens
from tiny_llm.scheduler import RequestState, Scheduler, Status

pytestmark = pytest.mark.usefixtures("on_the_cpu")

LENGTH = 12  # of an answer
TEXTS = ["Once upon a time", "What is FlashAttention?", "The quick brown fox. " * 8, "a", "Who are you? " * 9]


class Observed:
    """A model without FlashAttention that remembers the shapes of its inputs, and the caches it made."""

    def __init__(self, batch_caches):
        self._model, checkpoint = load_model("tiny", mx.float32, enable_flash_attn=False)
        self._batch_caches = batch_caches
        self._answers = {}
        self.prompts = [list(checkpoint.tokenizer.encode(text)) for text in TEXTS]
        self.vocab_size, self.max_seq_len = self._model.vocab_size, self._model.max_seq_len
        self.forget()

    def forget(self):
        self.shapes, self.made, self.released = [], 0, 0

    def __call__(self, inputs, *where):
        self.shapes.append(inputs.shape)
        return self._model(inputs, *where)

    def next_logits(self, inputs, *where):
        self.shapes.append(inputs.shape)
        return self._model.next_logits(inputs, *where)

    def create_kv_cache(self):
        self.made += 1
        caches = self._model.create_kv_cache()
        caches[0].release = self._release
        return caches

    def create_batch_cache(self, size, max_seq_len):
        return self._batch_caches(len(self._model.layers_inner), size, max_seq_len)

    def answer(self, prompt, length=LENGTH):
        """The greedy tokens after a prompt, in the loop of the course."""
        key = tuple(prompt), length
        if key not in self._answers:
            tokens = cached_tokens(self._model, prompt, TokenSampler(prompt), length, prefill_step=512)
            self._answers[key] = list(tokens)
        return self._answers[key]

    def scores(self, prompt):
        """The logits after each token of a prompt."""
        return self._model(mx.array([prompt]), 0, self._model.create_kv_cache())[0]

    @property
    def tokens(self):
        """How many were computed."""
        return sum(rows * length for rows, length in self.shapes)

    def _release(self):
        self.released += 1


class Loop:
    """Plans, runs and samples greedily; answer number n of a prompt begins with the nth best token."""

    def __init__(self, model, *, keeps=0, pages=400, ahead=False, drafts=lambda state: (), **options):
        self.model = model
        self.runner = DenseRunner(model, keeps=keeps)
        self.scheduler = Scheduler(PagePool(pages, 4), **{"step_tokens": 64, "max_running": 16} | options)
        self.states = []
        self.prompt_scores = []
        self.started_ahead = 0
        self.logits = None  # of the newest step
        self._may_start_ahead = ahead
        self._drafts = drafts
        self._ahead = None

    def add(self, prompt, length=LENGTH, **options):
        state = RequestState(str(len(self.states)), prompt, length, **options)
        self.scheduler.add(state)
        self.states.append(state)
        return state

    def step(self, between=lambda: None):
        """One step; `between` runs when the next one has been started. None if there is nothing to do."""
        plan = self.scheduler.plan()
        if not plan.rows:
            return None
        if self._ahead is not None and self._ahead[0] is plan.rows:
            logits = self._ahead[1]
        else:
            logits = self.runner.logits(plan)
        self._ahead, self.logits = None, logits
        assert logits.shape == (sum(row.scored for row in plan.rows), self.model.vocab_size)
        best = mx.argmax(logits, axis=-1) if len(logits) else mx.array([])
        following = self.scheduler.plan_ahead() if self._may_start_ahead else None
        if following is not None:
            sampled = [row.state for row in plan.rows]
            ids = best[mx.array([sampled.index(row.state) for row in following.rows])]
            self._ahead = following.rows, self.runner.logits(following, ids)
            self.started_ahead += 1
        between()
        self.scheduler.commit(plan, self._sampled(plan, logits, best.tolist()))
        for state in self.scheduler.running:
            if state.num_output >= state.max_tokens:
                self.scheduler.finish(state, "length")
            elif state.num_output:
                state.drafts = self._drafts(state)
        self.scheduler.check()
        return plan

    def run(self):
        while self.step():
            pass
        return [state.output_ids for state in self.states]

    def _sampled(self, plan, logits, best):
        tokens, end = {}, 0
        for row in plan.rows:
            begin, end = end, end + row.scored
            if row.scored > row.logits:
                self.prompt_scores.append(logits[begin:end])
            if row.logits and row.state.status is Status.RUNNING:
                for state in self.scheduler.fork(row.state):
                    if state is not row.state:
                        self.states.append(state)
                        tokens[state] = [mx.argsort(-logits[end - 1])[state.choice].item()]
                    else:
                        tokens[state] = accepted(list(row.drafts), best[end - row.logits : end])
        return tokens


def accepted(drafts, best):
    number = next((i for i, draft in enumerate(drafts) if draft != best[i]), len(drafts))
    return [*drafts[:number], best[number]]


def right_then_wrong(model, right):
    """Drafts of which so many are right, and one more is wrong."""

    def drafts(state):
        known = model.answer(list(state.prompt_ids), state.max_tokens)
        found = known[state.num_output : state.num_output + right]
        return [*found, (known[-1] + 1) % model.vocab_size]

    return drafts


def assert_answered(model, loop):
    """Each answer is what follows its prompt, or, after a first token of its own, what follows that."""
    for state in loop.states:
        output = state.output_ids
        if state.choice == 0:
            expected = model.answer(list(state.prompt_ids), state.max_tokens)
        else:
            rest = model.answer([*state.prompt_ids, *output[:1]], state.max_tokens)
            expected = [*output[:1], *rest[:-1]]
        cancelled = state.reason == "cancelled"
        assert output == (expected[: len(output)] if cancelled else expected)
