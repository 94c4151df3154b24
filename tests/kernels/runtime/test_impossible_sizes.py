"""A result larger than any address space raises an error; it is never allocated too small.

Broadcast inputs of any size need no memory. The byte counts here have 64 bits or more: as signed numbers they
are negative, and modulo 2^64 they are 0.
"""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.processes.child import run_python

native = load_extension()

# In a process of its own: a wrong kernel would crash it, and MLX may hang after a failed evaluation.
PROGRAM = """
import resource
import mlx.core as mx
from tiny_llm.attention import flash_attention
from tiny_llm.runtime.extension import load_extension

native = load_extension()
mx.set_default_device(mx.cpu)
resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))  # a kernel that writes out of bounds soon crashes
MANY, FEW = 1_600_000_000, 25_000_000  # multiples of 64; MANY * MANY numbers of float32 are over 2^63 bytes

def of(*shape, dtype=mx.float32):
    return mx.broadcast_to(mx.zeros((), dtype), shape)

MATRIX = of(MANY, 8, dtype=mx.uint32), of(MANY, 1), of(MANY, 1)
try:
    mx.eval({call})
except RuntimeError as error:
    print(error)
"""

OPERATIONS = {
    "linear": "native.linear(of(MANY, 1), of(MANY, 1))",
    "quantized_matmul": "native.quantized_matmul(*MATRIX[1:], 64, 4, of(MANY, 64), MATRIX[0], True)",
    "quantized_linear": "native.quantized_linear(of(MANY, 64), [MATRIX], 64, 4)",
    "quantized_linear, gated": "native.quantized_linear(of(MANY, 64), [MATRIX] * 2, 64, 4, gated=True)",
    "quantized_rows": "native.quantized_rows(of(MANY, dtype=mx.int32), of(1, MANY // 8, dtype=mx.uint32),"
    " of(1, MANY // 64), of(1, MANY // 64), 64, 4)",
    "rms_norm": "native.rms_norm(of(MANY, MANY), of(MANY), 1e-5)",
    "rope": "native.rope(of(MANY, 1, MANY // 2, 2), of(1, 1), of(1, 1), 0)",
    "silu_multiply": "native.silu_multiply(of(MANY, MANY), of(MANY, MANY))",
    "argmax": "native.argmax(of(MANY, MANY, 1))",
    "logsumexp": "native.logsumexp(of(MANY, MANY, 1))",
    "top_k": "native.top_k(of(MANY, MANY, 1), 1)",
    "categorical": "native.categorical(of(MANY, MANY, 1), of(MANY, MANY))",
    "flash_attention": "flash_attention(of(1, FEW, MANY, 64), of(1, 1, 1, 64), of(1, 1, 1, 64))",
    "paged_attention": "native.paged_attention(of(FEW, MANY, 64), of(1, 1, 1, 64), of(1, 1, 1, 64),"
    " of(1, 1, dtype=mx.int32), of(1, dtype=mx.int32), num_kv_heads=1, num_heads=FEW)",
    "cached_attention": "native.cached_attention(of(1, MANY, FEW, 64), of(1, MANY, 1, 64),"
    " of(1, MANY, 1, 64), [(of(1, 1, MANY, 64), of(1, 1, MANY, 64), 0)], of(MANY, 32), of(MANY, 32), 0)[0]",
    "2^64 numbers": "native.quantized_rows(of(2**20, 2**20, dtype=mx.int32), of(1, 2**21, dtype=mx.uint32),"
    " of(1, 2**18), of(1, 2**18), 64, 4)",
    "2^64 numbers of attention": "flash_attention(of(2**17, 2**17, 2**24, 64), *2 * [of(2**17, 1, 1, 64)])",
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_impossible_sizes_are_refused(name):
    done = run_python("-c", PROGRAM.format(call=OPERATIONS[name]))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"tiny_llm_ext: out of memory: cannot allocate {2**62} bytes or more\n"


@pytest.mark.parametrize("shape", [(2**30, 2**30, 2**30, 0), (0, 2**30, 2**30, 2**30)], ids=str)
def test_an_empty_result_needs_no_memory(shape):
    nothing = mx.zeros(shape)
    y = native.silu_multiply(nothing, nothing)
    mx.eval(y)
    assert y.shape == shape
