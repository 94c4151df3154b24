"""The process that renders templates: one for all templates, replaced when it ends, ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tiny_llm.loading import LoadError
from tiny_llm.loading.tokenizer.chat_template import TEMPLATE_WORKER, ChatTemplate

from ..support.processes.child import run_python

SAID = [{"role": "user", "content": "Hello."}]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HUNGRY = "{{ ([0] * 10**8) | length }}"
PATIENCE = 60.0
# A program whose `render` is that of a template that came with a model.
PROGRAM = f"""
import os, signal, threading
from tiny_llm.loading import LoadError, load
from tiny_llm.loading.tokenizer.chat_template import TEMPLATE_WORKER, ChatTemplate

def render(source, seconds=20.0):
    return ChatTemplate(source, {{}}, seconds=seconds).render({SAID})
"""


def render(source: str, seconds: float = 20.0) -> str:
    return ChatTemplate(source, {}, seconds=seconds).render(SAID)


def is_running(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    if Path("/proc/self").exists():  # Linux, where `ps` may be missing
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], text=True, capture_output=True, check=False)
    return found.stdout.strip()[:1] not in ("", "Z")


def assert_ends(pid: int) -> None:
    end = time.monotonic() + PATIENCE
    while is_running(pid):
        assert time.monotonic() < end, f"process {pid} lives on"
        time.sleep(0.01)


@pytest.fixture
def worker() -> int:
    """The process after one answer."""
    render("x")
    assert TEMPLATE_WORKER.pid is not None
    return TEMPLATE_WORKER.pid


def test_all_templates_share_one_process(worker: int) -> None:
    assert [render(f"{{{{ {n} + 1 }}}}") for n in range(5)] == ["1", "2", "3", "4", "5"]
    with pytest.raises(LoadError, match="ZeroDivisionError"):
        render("{{ 1 / 0 }}")
    assert TEMPLATE_WORKER.pid == worker


def test_templates_share_no_state(worker: int) -> None:
    render("{% set secret = messages[0].content %}{% macro lost() %}{% endmacro %}{{ secret }}")
    assert render("{{ secret is defined }} {{ lost is defined }}") == "False False"
    assert TEMPLATE_WORKER.pid == worker


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_process_that_was_killed_is_replaced(worker: int, number: int) -> None:
    os.kill(worker, number)
    assert render("{{ messages[0].content }}") == "Hello."
    assert TEMPLATE_WORKER.pid not in (worker, None)
    assert_ends(worker)


@pytest.mark.parametrize(("source", "seconds"), [(ENDLESS, 0.3), (HUNGRY, 20.0)])
def test_a_stopped_process_is_replaced_and_collected(worker: int, source: str, seconds: float) -> None:
    processes = [worker]
    for _ in range(3):
        with pytest.raises(LoadError, match=r"and was stopped|too much memory"):
            render(source, seconds)
        assert render("x") == "x"
        assert TEMPLATE_WORKER.pid is not None
        processes.append(TEMPLATE_WORKER.pid)
    TEMPLATE_WORKER.stop()
    assert TEMPLATE_WORKER.pid is None
    for process in processes:
        with pytest.raises(ChildProcessError):  # it does not even wait to be collected
            os.waitpid(process, os.WNOHANG)


def test_the_time_limit_is_that_of_each_request(worker: int) -> None:
    for _ in range(4):
        render("{% for a in range(99) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", seconds=20)
    assert TEMPLATE_WORKER.pid == worker


def test_many_threads_get_their_own_answers(worker: int) -> None:
    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda n: render(f"{{{{ '{n} ' * {n} }}}}"), range(200)))
    assert texts == [f"{n} " * n for n in range(200)]
    assert TEMPLATE_WORKER.pid == worker


def test_ctrl_c_reaches_the_program_and_not_the_process(worker: int) -> None:
    os.kill(worker, signal.SIGINT)
    assert render("x") == "x"
    assert TEMPLATE_WORKER.pid == worker


def test_after_ctrl_c_the_next_request_gets_its_own_answer() -> None:
    program = f"""{PROGRAM}
render("x")
late = "{{% for a in range(300) %}}{{% for b in range(9999) %}}{{% endfor %}}{{% endfor %}}late"
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    render(late)
    print("too early")
except KeyboardInterrupt:
    print(render("next"))
"""
    result = run_python("-c", program)
    assert (result.stdout, result.returncode) == ("next\n", 0), result.stderr


def test_it_is_started_on_demand_and_not_for_the_embedded_model() -> None:
    program = f"""{PROGRAM}
load("tiny").tokenizer.apply_chat_template({SAID})
print(TEMPLATE_WORKER.pid)
render("x")
print(TEMPLATE_WORKER.pid is None)
"""
    assert run_python("-c", program).stdout == "None\nFalse\n"


@pytest.mark.parametrize(
    "end",
    ["", "raise SystemExit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"],
    ids=["at the end", "by an exit code", "killed", "without clean-up"],
)
def test_it_ends_with_its_parent(end: str) -> None:
    result = run_python("-c", f'{PROGRAM}\nrender("x")\nprint(TEMPLATE_WORKER.pid, flush=True)\n{end}')
    assert_ends(int(result.stdout))


def test_a_busy_process_ends_soon_after_its_parent() -> None:
    program = f"""{PROGRAM}
render("x")
print(TEMPLATE_WORKER.pid, flush=True)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
render("{ENDLESS}", seconds=3.0)
"""
    result = run_python("-c", program)
    assert result.returncode == -signal.SIGKILL
    assert_ends(int(result.stdout))


def test_a_forked_child_has_a_process_of_its_own() -> None:
    program = f"""{PROGRAM}
render("x")
first = TEMPLATE_WORKER.pid
if (child := os.fork()) == 0:
    print(render("child"), TEMPLATE_WORKER.pid != first, flush=True)
    TEMPLATE_WORKER.stop()
    os._exit(0)
os.waitpid(child, 0)
print(render("parent"), TEMPLATE_WORKER.pid == first)
"""
    result = run_python("-c", program)
    assert (result.stdout, result.returncode) == ("child True\nparent True\n", 0), result.stderr


def test_a_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each request, which takes longer than to render it. Other templates do not mix with it."""
    compiled = []
    compile_it = ImmutableSandboxedEnvironment.compile

    def note(self: Any, source: Any, *arguments: Any) -> Any:
        compiled.append(source)
        return compile_it(self, source, *arguments)

    monkeypatch.setattr(ImmutableSandboxedEnvironment, "compile", note)
    for name in ("once", "other", "once"):
        source = "{% set here = messages[0].content %}" + name + "{{ here }}"
        for text in ("a", "b"):
            template = ChatTemplate(source, {}, trusted=True)
            assert template.render([{"role": "user", "content": text}]) == name + text
    assert len(compiled) == 2
