"""Python threads with their own graphs and streams do not affect each other, nor does a fork the parent."""

import threading

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention

from ...support.cases import qkv
from ...support.processes.child import run_python

SHAPES = ((130, 130), (1, 3000), (33, 65))


def results():
    """Attention of several shapes as NumPy arrays, computed on a stream of the calling thread."""
    with mx.stream(mx.new_stream(mx.cpu)):
        return [np.array(flash_attention(*qkv(L=L, S=S), causal=True)) for L, S in SHAPES]


def test_threads_with_their_own_graphs():
    want = results()
    wrong, start = [], threading.Barrier(4)

    def work():
        start.wait()
        for _ in range(15):
            if not all(np.array_equal(a, b) for a, b in zip(results(), want, strict=True)):
                wrong.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


FORK = """
import os, sys
import mlx.core as mx
from tiny_llm.attention import flash_attention
mx.set_default_device(mx.cpu)
q = mx.random.normal((1, 4, 300, 64))
before = flash_attention(q, q, q)
mx.eval(before)
child = os.fork()
if child == 0:
    os._exit(7)
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 7
assert mx.array_equal(before, flash_attention(q, q, q))
"""


@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_a_fork_does_not_affect_the_parent(leave):
    """The child does not wait for the parent's threads, which it does not have."""
    result = run_python("-c", FORK.replace("os._exit", leave))
    assert result.returncode == 0, result.stderr


def test_a_process_can_end_while_the_thread_pool_runs(monkeypatch):
    """On a stream that is never synchronized."""
    monkeypatch.setenv("TINY_LLM_THREADS", "8")
    last = "\nwith mx.stream(mx.new_stream(mx.cpu)):\n    mx.async_eval(flash_attention(q + 1, q, q))"
    program = FORK.split("child =")[0] + last
    result = run_python("-c", program)
    assert result.returncode == 0, result.stderr
