"""A program that ends during an evaluation."""

from ...support.processes.child import run_python

# The first function registered runs last.
PROGRAM = """
import atexit
atexit.register(lambda: print(load_extension().last_run()["tiles_total"]))
import mlx.core as mx
from tiny_llm import flash_attention
from tiny_llm.runtime.extension import load_extension
mx.set_default_device(mx.cpu)
tokens = mx.random.normal((1, 4, 700, 64))
mx.eval(tokens)
for _ in range(20):
    tokens = flash_attention(tokens, tokens, tokens)
mx.async_eval(flash_attention(tokens[:, :1, :8], tokens[:, :1, :8], tokens[:, :1, :8]))
"""


def test_exit_waits_for_the_evaluation():
    """Otherwise the heap was corrupted at exit once in some dozens of runs."""
    done = run_python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
