"""How many threads operations have: one number for prompts and one for decoding, chosen for the process."""

import os
from pathlib import Path

import pytest

from ...support.processes.child import run_python

# Prints the operations after which the process has more threads, for each number of rows in argv. Few rows
# are decoding; 64 are more than any instruction set takes as few.
STARTED = """
import os, sys
import mlx.core as mx
from tests.support.cases import normal
from tests.support.products.quantized import packed
from tiny_llm.runtime.extension import load_extension

mx.set_default_device(mx.cpu)
native = load_extension()
N, K, WIDTH = 4096, 1024, 200_000
weights, norm, packs = normal(N, K), normal(WIDTH), packed(N, K)
triple = (packs.words, packs.scales, packs.biases)

def operations(x, wide):
    return {
        "linear": lambda: native.linear(x, weights),
        "vmap of linear": lambda: mx.vmap(lambda row: native.linear(row, weights))(x),
        "quantized_matmul": lambda: native.quantized_matmul(
            packs.scales, packs.biases, packs.group_size, packs.bits, x, packs.words, transpose_b=True
        ),
        "quantized_linear": lambda: native.quantized_linear(x, [triple], packs.group_size, packs.bits),
        "silu_multiply": lambda: native.silu_multiply(wide, wide),
        "rms_norm": lambda: native.rms_norm(wide, norm, 1e-5),
        "argmax": lambda: native.argmax(wide),
        "logsumexp": lambda: native.logsumexp(wide),
    }

for rows in map(int, sys.argv[1:]):
    inputs = normal(rows, K), normal(rows, WIDTH)
    mx.eval([each + 0 for each in (*inputs, weights, norm, *triple)])  # MLX has a thread of its own, too
    for name, operation in operations(*inputs).items():
        before = len(os.listdir("/proc/self/task"))
        mx.eval(operation())
        if len(os.listdir("/proc/self/task")) > before:
            print(rows, name)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the threads of a process")
@pytest.mark.parametrize(("threads", "alone", "shared"), [("2,1", "3", "64"), ("1,2", "64", "3")])
def test_few_rows_have_the_threads_of_decoding(threads, alone, shared, monkeypatch):
    monkeypatch.setenv("TINY_LLM_THREADS", threads)
    result = run_python("-c", STARTED, alone, shared)
    assert result.stdout == f"{shared} linear\n", result.stderr


ATTENTION = """
import mlx.core as mx
from tests.support.cases import qkv
from tiny_llm.runtime.extension import load_extension

native = load_extension()

def threads_of(L, **options):
    mx.eval(native.attention(*qkv(batch=(8,), L=L, S=3000), causal=True, **options))
    return native.last_run()["threads"]

print(native.cpu_threads(), threads_of(1), threads_of(40), threads_of(1, threads=3))
early = native.attention(*qkv(L=40, S=3000))
native.set_cpu_threads("3,2")
print(native.cpu_threads(), threads_of(1), threads_of(40))
mx.eval(early)
print(native.last_run()["threads"])
"""


def test_single_positions_have_the_threads_of_decoding_and_settings_act_at_once(monkeypatch):
    monkeypatch.setenv("TINY_LLM_THREADS", "5,4")
    result = run_python("-c", ATTENTION)
    assert result.stdout.splitlines() == ["(5, 4) 4 5 3", "(3, 2) 2 3", "5"], result.stderr


# The threads of attention in the last step: that of the prompt for one new token, else one of decoding.
MODEL = """
from tiny_llm import LLM
from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.runtime.extension import load_extension
from tiny_llm.sampling.params import Sampling

llm = LLM(threads="3,2")
native = load_extension()
prompt = "word " * 1500
engine = Engine(llm, step_tokens=4096) if PAGES else None
for tokens in (1, 5):
    if engine is None:
        llm.generate(prompt, max_tokens=tokens)
    else:
        sampling = Sampling(max_tokens=tokens, ignore_eos=True)
        list(engine.submit(EngineRequest(prompt_ids=llm.tokenizer.encode(prompt), sampling=sampling)))
    print(native.last_run()["threads"])
print(native.cpu_threads(), native.explain_cpu_threads())
"""


@pytest.mark.parametrize("pages", [False, True], ids=["dense caches", "pages"])
def test_a_model_decodes_with_other_threads_than_it_reads(pages):
    result = run_python("-c", MODEL.replace("PAGES", str(pages)))
    assert result.stdout.splitlines() == ["3", "2", "(3, 2) threads=3,2"], result.stderr


def test_a_wrong_variable_can_be_mended(monkeypatch):
    """The environment of a process is read until it is right: nothing is decided by an error."""
    monkeypatch.setenv("TINY_LLM_THREADS", "many")
    program = """
import os, tiny_llm_ext
try:
    tiny_llm_ext.cpu_threads()
except ValueError as error:
    print(error)
os.environ["TINY_LLM_THREADS"] = "2,1"
print(tiny_llm_ext.cpu_threads(), tiny_llm_ext.explain_cpu_threads())
"""
    first, second = run_python("-c", program).stdout.splitlines()
    assert first.startswith("TINY_LLM_THREADS: got 'many', expected a positive integer, or two such as 16,8")
    assert second == "(2, 1) TINY_LLM_THREADS=2,1"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="an affinity is set on Linux only")
def test_a_process_on_one_cpu_has_one_thread(monkeypatch):
    monkeypatch.delenv("TINY_LLM_THREADS", raising=False)
    program = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import tiny_llm_ext
print(tiny_llm_ext.cpu_threads(), tiny_llm_ext.explain_cpu_threads())
"""
    assert run_python("-c", program).stdout.startswith("(1, 1) 1 of 1 CPUs: all that are allowed; quota ")
