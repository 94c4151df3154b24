"""What MLX cannot do is refused, as docs/library.md says: computing in a forked child, exporting."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

import tiny_llm

from ..support.processes.child import run_python

FORK = """
import os, signal
{before}
child = os.fork()
if child == 0:
    signal.alarm(60)  # a hang would end here
    try:
        print({call}, flush=True)
    except NotImplementedError as error:
        print(error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
LOAD = """
from tiny_llm import LLM
from tiny_llm.engine import Engine, EngineRequest
llm = LLM("tiny", device="cpu")
"""


@pytest.mark.parametrize(
    ("before", "call"),
    [
        (LOAD, "llm.generate('a', max_tokens=1).text"),
        (LOAD, "next(llm.stream('a'))"),
        (LOAD, "LLM('tiny', device='cpu')"),
        (f"{LOAD}engine = Engine(llm)", "engine.submit(EngineRequest(prompt_ids=[5]))"),
    ],
)
def test_a_forked_child_of_a_process_that_has_computed_is_refused(before: str, call: str) -> None:
    result = run_python("-c", FORK.format(before=before, call=call))
    assert (result.returncode, result.stderr) == (0, "")
    assert (
        "process: got a child that was forked after MLX had computed, expected one that was" in result.stdout
    )


def test_a_child_that_is_forked_before_computes() -> None:
    call = "tiny_llm.LLM('tiny', device='cpu').generate('Once', max_tokens=1).statistics.generated_tokens"
    result = run_python("-c", FORK.format(before="import tiny_llm", call=call))
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


def test_a_process_that_ends_while_an_engine_computes_closes_it() -> None:
    """By itself: a thread that computes while Python ends could crash it."""
    endless = "EngineRequest(prompt_ids=[5], sampling=Sampling(ignore_eos=True))"
    begin = f"from tiny_llm import Sampling\nhandle = Engine(llm).submit({endless})\nnext(handle)\n"
    last = "import atexit\natexit.register(lambda: print(list(handle)[-1].finish_reason))\n"
    result = run_python("-c", f"{last}{LOAD}{begin}")
    assert (result.returncode, result.stdout, result.stderr) == (0, "cancelled\n", "")


def test_our_operations_are_not_exported(tmp_path: Path) -> None:
    file, query = str(tmp_path / "f.mlxfn"), mx.zeros((1, 1, 4, 8))
    message = "Unable to serialize primitive tiny_llm_ext::Attention"
    with mx.stream(mx.cpu), pytest.raises(ValueError, match=message):
        mx.export_function(file, lambda x: tiny_llm.flash_attention(x, x, x), query)
