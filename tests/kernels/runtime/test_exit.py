"""A program that ends while something is being computed."""

from ...support.processes.child import run_python

# What is registered first runs last.
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


def test_what_is_being_computed_is_waited_for():
    """Else a program ended in one of some dozens of cases with a corrupted heap."""
    done = run_python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
