"""Limits of time for grammars: to compile, in line, and for each token; and refusals that are remembered."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiny_llm import GrammarError
from tiny_llm.errors import GrammarQueueBusy
from tiny_llm.runtime.worker_process import WorkerProcess, WorkerTooSlow
from tiny_llm.sampling.grammar import Grammar, compile_grammar, find_grammar, start_grammar
from tiny_llm.sampling.grammar import compiler as grammar_compiler
from tiny_llm.sampling.grammar import state as grammar_state
from tiny_llm.sampling.grammar.check_process import allocated
from tiny_llm.sampling.grammar.compiler import CROWDED_SECONDS, GRAMMAR_WORKER, TRIALS, Trials

from ...support.refusal import refused
from .grammars import PATTERN

# Each pattern of an intersection doubles the work; llguidance has no limit for this.
ENDLESS = Grammar.json_schema(
    {"allOf": [{"type": "string", "pattern": f".*a.{{{count}}}"} for count in range(10, 60)]}
)


def test_a_grammar_that_takes_too_long_is_stopped_and_the_next_compiles(tokenizer):
    start_grammar(tokenizer, Grammar.regex("first"))
    process = GRAMMAR_WORKER.pid
    with refused("grammar", function="Grammar") as caught:
        start_grammar(tokenizer, ENDLESS, seconds=0.3)
    assert "it took more than 0.3 s" in str(caught.value)
    assert start_grammar(tokenizer, Grammar.regex("next")).allowed()
    assert GRAMMAR_WORKER.pid not in (process, None)


def test_a_grammar_that_was_refused_is_refused_at_once(tokenizer, monkeypatch):
    with refused("grammar", function="Grammar") as first:
        start_grammar(tokenizer, Grammar.lark("start: nothing_of_this_name"))
    monkeypatch.setattr(grammar_compiler, "TRIALS", None)
    with refused("grammar", function="Grammar") as second:
        start_grammar(tokenizer, Grammar.lark("start: nothing_of_this_name"))
    assert str(second.value) == str(first.value)


def test_only_the_newest_refusals_are_kept_and_not_for_ever(monkeypatch):
    now = 0.0
    monkeypatch.setattr(grammar_compiler.time, "monotonic", lambda: now)
    kept = grammar_compiler.Refusals()
    grammars = [Grammar.regex(f"({number}") for number in range(grammar_compiler.MAX_REFUSALS + 1)]
    for grammar in grammars:
        kept.add(grammar, "an open group")
    assert kept.find(grammars[0]) is None
    assert kept.find(grammars[1]) == kept.find(grammars[-1]) == "an open group"
    now = grammar_compiler.FORGET_AFTER
    assert kept.find(grammars[-1]) is None


def test_a_grammar_that_several_wait_for_is_tried_once(tokenizer):
    """All others are refused as soon as the first one is."""
    hostile = Grammar.json_schema({**json.loads(ENDLESS.text), "title": "several"})
    requests: list[str] = []
    request = GRAMMAR_WORKER.request

    def note(record, seconds):
        requests.append(record)
        return request(record, seconds)

    def ask(_: int) -> str:
        with refused("grammar", function="Grammar") as caught:
            start_grammar(tokenizer, hostile, seconds=0.3)
        return str(caught.value)

    start_grammar(tokenizer, Grammar.regex("known"))
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as threads:
        patch.setattr(GRAMMAR_WORKER, "request", note)
        assert len(set(threads.map(ask, range(4)))) == 1
    assert len(requests) == 1


def test_a_grammar_that_is_too_slow_only_while_others_wait_is_not_refused(tokenizer, monkeypatch):
    monkeypatch.setattr(grammar_compiler, "CROWDED_SECONDS", 0.2)
    monkeypatch.setattr(TRIALS, "_in_line", 1)
    crowded = Grammar.json_schema({**json.loads(ENDLESS.text), "title": "crowded"})
    with pytest.raises(GrammarQueueBusy, match=r"more than 0.2 s to compile, and others wait: try again"):
        start_grammar(tokenizer, crowded, seconds=0.4)
    assert find_grammar(tokenizer, crowded) is None
    monkeypatch.setattr(TRIALS, "_in_line", 0)
    with refused("grammar", function="Grammar"):
        start_grammar(tokenizer, crowded, seconds=0.4)
    with refused("grammar", function="Grammar"):
        find_grammar(tokenizer, crowded)


def test_a_wrong_grammar_is_refused_while_others_wait_too(tokenizer, monkeypatch):
    monkeypatch.setattr(TRIALS, "_in_line", 1)
    wrong = Grammar.regex("(wrong while others wait")
    with refused("grammar", function="Grammar"):
        start_grammar(tokenizer, wrong)
    with refused("grammar", function="Grammar"):
        find_grammar(tokenizer, wrong)


def test_a_grammar_is_forgotten_when_others_came_and_nobody_holds_it(tokenizer, monkeypatch):
    monkeypatch.setattr(grammar_compiler, "MAX_COMPILED", 1)
    grammar = Grammar.regex("held")
    held = compile_grammar(tokenizer, grammar)
    for number in range(2):
        start_grammar(tokenizer, Grammar.regex(f"other {number}"))
        assert find_grammar(tokenizer, grammar) is held
    del held
    start_grammar(tokenizer, Grammar.regex("other 2"))
    assert find_grammar(tokenizer, grammar) is None


def test_the_grammar_that_was_not_used_for_the_longest_time_is_forgotten_first(tokenizer, monkeypatch):
    monkeypatch.setattr(grammar_compiler, "MAX_COMPILED", 2)
    used, unused, newest = (Grammar.regex(f"kept {number}") for number in range(3))
    for grammar in (used, unused, used, newest):
        start_grammar(tokenizer, grammar)
    assert find_grammar(tokenizer, used) is not None
    assert find_grammar(tokenizer, unused) is None


@pytest.mark.skipif(allocated() is None, reason="the C library does not say what is allocated")
def test_the_size_of_a_grammar_is_measured(tokenizer):
    """Of two schemas with about the same text, one is compiled to many times as much."""
    plain = {"properties": {f"a{number}": {"enum": [number + 1]} for number in range(100)}}
    large = {"properties": {f"a{number}": {"multipleOf": number + 1} for number in range(100)}}
    sizes = [compile_grammar(tokenizer, Grammar.json_schema(each)).size for each in (plain, large)]
    assert 50_000 < sizes[0] < 2**20 < 2**21 < sizes[1] < 2**25


def test_the_size_of_a_grammar_is_estimated_where_it_cannot_be_measured(tokenizer, monkeypatch):
    monkeypatch.setattr(TRIALS, "run", lambda *_: {"size": None})
    sizes = [compile_grammar(tokenizer, Grammar.regex("a" * count)).size for count in (1000, 3000)]
    assert sizes[0] > 2**16
    assert sizes[1] - sizes[0] == 2000 * grammar_compiler.SIZE_PER_BYTE


def test_grammars_that_are_known_take_no_more_than_their_part_of_the_memory(tokenizer, monkeypatch):
    grammars = [Grammar.regex(f"large {number}") for number in range(3)]
    sizes = [compile_grammar(tokenizer, each).size for each in grammars]
    monkeypatch.setattr(grammar_compiler, "MAX_COMPILED_BYTES", sum(sizes) - 1)
    assert find_grammar(tokenizer, grammars[2])  # the newest, so that others are forgotten
    assert [find_grammar(tokenizer, each) is not None for each in grammars] == [False, True, True]


def test_a_grammar_has_less_time_while_others_wait():
    """Without a process: what is asked of it, with the time limit."""
    asked: list[tuple[str, float]] = []
    two_wait, done = threading.Event(), threading.Event()

    class Process:
        def request(self, record: str, seconds: float) -> dict[str, str]:
            asked.append((json.loads(record)["text"], seconds))
            return {}

    trials = Trials(Process())

    def ask(text: str) -> None:
        with trials.turn(5.0) as seconds:
            trials.run(Grammar.regex(text), {}, "", seconds)
            if text == "first":
                two_wait.set()
                assert done.wait(30)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(ask, "first")
        assert two_wait.wait(30)
        others = [threads.submit(ask, text) for text in ("second", "third")]
        while trials._in_line < 3:
            time.sleep(0.001)
        done.set()
        for each in (first, *others):
            each.result()
    assert dict(asked)["first"] == 5.0
    assert sorted(seconds for _, seconds in asked) == [CROWDED_SECONDS, 5.0, 5.0]


def test_the_start_of_the_process_takes_no_time_from_a_grammar(tmp_path):
    """Also after one that was too slow or too large, which ended the process."""
    handler = tmp_path / "handler.py"
    handler.write_text(
        "import time\ntime.sleep(0.6)\nMEMORY = 2**31\nTOO_MUCH_MEMORY = {'error': 'large'}\nknown = set()\n"
        "def handle(tokenizer, definition=None, text='', **_):\n"
        "    if definition is None and tokenizer not in known: return {'unknown': tokenizer}\n"
        "    known.add(tokenizer)\n"
        "    if text == 'slow': time.sleep(60)\n"
        "    return TOO_MUCH_MEMORY if text == 'large' else {}\n"
    )
    process = WorkerProcess(handler)

    def run(text: str) -> dict[str, str]:
        name = {"tokenizer": "a"}
        return Trials(process).run(Grammar.regex(text), name, "its definition", 0.5)

    try:
        assert run("first") == {}
        with pytest.raises(WorkerTooSlow):
            run("slow")
        assert run("large") == {"error": "large"}
        assert run("next") == {}
    finally:
        process.stop()


def test_a_grammar_that_takes_too_long_for_each_token_ends_its_answers(tokenizer, monkeypatch):
    """Each of its masks is legal for llguidance; all together are not for us."""
    monkeypatch.setattr(grammar_state, "MOST", 0.05)
    monkeypatch.setattr(grammar_state, "PER_TOKEN", 0.0)
    slow = Grammar.regex(r"(a|b|[^z]{1,20}c)*a.{1,80}(foo|bar)")
    state, other = (start_grammar(tokenizer, slow) for _ in range(2))
    fork = state.copy()
    with pytest.raises(GrammarError, match=r"takes too much time for each token$"):
        list(map(state.allowed, [()] * 100_000))
    with pytest.raises(GrammarError, match=r"takes too much time for each token$"):
        fork.allowed()
    assert other.allowed()  # of another request, which has not used its time
    with refused("grammar", function="Grammar") as caught:
        start_grammar(tokenizer, slow)
    assert "too much time for each token" in str(caught.value)
    assert start_grammar(tokenizer, PATTERN).allowed()


def test_tokens_earn_time_up_to_a_limit(monkeypatch):
    now = 0.0
    monkeypatch.setattr(grammar_state.time, "thread_time", lambda: now)
    reasons: list[str] = []
    time_of = grammar_state.TimeBudget(reasons.append)
    for _ in range(1000):  # each takes as much as it brings
        time_of.earn(2)
        with time_of.spending():
            now += 2 * grammar_state.PER_TOKEN
    with time_of.spending():
        now += grammar_state.MOST / 2
    assert reasons == []
    time_of.earn(10**6)
    with pytest.raises(GrammarError), time_of.spending():
        now += grammar_state.MOST * 1.01
    assert reasons == [grammar_state.TOO_SLOW]


def test_a_fault_in_a_grammar_that_is_too_slow_as_well_ends_the_grammar_too(monkeypatch):
    now = 0.0
    monkeypatch.setattr(grammar_state.time, "thread_time", lambda: now)
    reasons: list[str] = []
    time_of = grammar_state.TimeBudget(reasons.append)

    def take_too_long_and_fail() -> None:
        nonlocal now
        now += grammar_state.MOST * 1.01
        raise KeyError("a fault of llguidance")

    with pytest.raises(KeyError), time_of.spending():
        take_too_long_and_fail()
    assert reasons == [grammar_state.TOO_SLOW]
