"""Products are bitwise equal for every number of threads, which a process reads from its environment."""

import pytest

from ...support.processes.child import run_python

# Enough work to wake threads; a number of outputs that no number of threads or lanes divides.
BITS = """
import hashlib
import mlx.core as mx
from tests.support.cases import DTYPES, normal
from tests.support.products.quantized import packed
from tiny_llm.runtime.extension import load_extension

native = load_extension()
N, K = 2107, 2048
for dtype in DTYPES:
    matrices = [packed(n, K, dtype=dtype, seed=n) for n in (N, 70)]
    gated = [packed(N, K, dtype=dtype, seed=seed) for seed in (1, 2)]
    dense = normal(N, K, dtype=dtype)
    for rows in (1, 2, 3, 8, 16, 20, 33):
        x = normal(rows, K, dtype=dtype)
        results = [native.linear(x, dense)]
        for some, options in ((matrices, {}), (gated, {"gated": True})):
            triples = [(w.words, w.scales, w.biases) for w in some]
            results += native.quantized_linear(x, triples, some[0].group_size, some[0].bits, **options)
        mx.eval(results)
        for result in results:
            numbers = memoryview(mx.view(result, mx.uint8))
            print(dtype, rows, result.shape, hashlib.sha256(numbers).hexdigest())
"""


def bits(threads: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("TINY_LLM_THREADS", str(threads))
    done = run_python("-c", BITS)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_bits_of_a_product_do_not_depend_on_threads(monkeypatch):
    alone = bits(1, monkeypatch)
    assert len(set(alone)) == 3 * 7 * 4
    for threads in (2, 3):
        assert bits(threads, monkeypatch) == alone
