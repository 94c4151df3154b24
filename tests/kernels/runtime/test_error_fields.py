"""A refused argument is an ArgumentError whose fields are the parts of its text."""

import mlx.core as mx
import pytest

from tiny_llm.errors import ArgumentError
from tiny_llm.runtime.extension import load_extension

from ...support.processes.child import run_python

native = load_extension()
X = mx.zeros((1, 2, 4, 8))
PAGES = mx.zeros((5, 2, 16, 8))
TABLE = mx.zeros((16, 4))


def paged(**other):
    arguments = {"query": mx.zeros((4, 9, 8)), "key_pages": PAGES, "value_pages": PAGES,
                 "block_table": mx.zeros((1, 3), dtype=mx.int32),
                 "context_lens": mx.zeros((1,), dtype=mx.int32),
                 "num_kv_heads": 2, "num_heads": 4}  # fmt: skip
    return native.paged_attention(**(arguments | other))


REFUSED = {
    "a shape": (
        lambda: native.attention(X, X[..., :3], X),
        (
            "flash_attention",
            "key",
            "(1, 2, 4, 3)",
            "(B..., Hkv, S, E) with B... = (1,) of query, E = 8 of query",
        ),
    ),
    "a type": (
        lambda: native.attention(X, X.astype(mx.float16), X),
        ("flash_attention", "key", "float16", "float32, the dtype of query"),
    ),
    "an object": (
        lambda: native.attention(X, X, X, mask=3),
        ("flash_attention", "mask", "3", "None, 'causal' or an array"),
    ),
    "a length": (
        lambda: native.attention(X, X, X, kv_lens=mx.array([5])),
        ("flash_attention", "kv_lens", "5 for sequence 0", "0 to 4"),
    ),
    "an instruction set": (
        lambda: native.attention(X, X, X, isa="mmx"),
        ("flash_attention", "isa", "'mmx'", f"one of {', '.join(native.cpu_isas())}"),
    ),
    "a context": (
        lambda: paged(context_lens=mx.array([49])),
        (
            "paged_attention",
            "context_lens",
            "49 for sequence 0",
            "at most the 48 slots of its row of block_table",
        ),
    ),
    "an offset": (
        lambda: native.rope(mx.zeros((2, 3, 1, 8)), TABLE, TABLE, mx.array([0, 14])),
        ("rope", "offset", "14 for row 1", "0 to 13"),
    ),
    "a number": (
        lambda: native.rms_norm(X, mx.zeros(8), -1.0),
        ("rms_norm", "eps", "-1", "a finite number of at least 0"),
    ),
    "bytes": (lambda: native.read_bandwidth(0), ("read_bandwidth", "bytes", "0", "at least 1")),
    "a method's": (
        lambda: native.WeightMemory([-1]),
        ("WeightMemory", "sizes", "-1", "numbers of bytes"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_fields_are_the_parts_of_the_text(case):
    call, (operation, argument, got, expected) = REFUSED[case]
    with pytest.raises(ArgumentError) as raised:
        call()
    error = raised.value
    assert (error.operation, error.argument, error.got, error.expected) == (
        operation,
        argument,
        got,
        expected,
    )
    assert str(error) == f"{operation}: {argument}: got {got}, expected {expected}"


# In processes of their own: the class is set per process.
PROGRAM = """
import mlx.core as mx
{imports}

class Refused(ValueError):
    def __init__(self, operation, argument, got, expected):
        super().__init__(operation, argument, got, expected)

def raised(call):
    try:
        call()
    except ValueError as error:
        return type(error).__name__, error.args

x = mx.zeros((1, 1, 4, 8))
{use}
"""
FIRST, SECOND = "from tiny_llm_ext import _ext as native", "from extensions.tiny_llm_ext import _ext as other"
PARTS = ("rms_norm", "eps", "-1", "a finite number of at least 0")


def output_of(use: str, *imports: str) -> str:
    done = run_python("-c", PROGRAM.format(imports="\n".join(imports), use=use))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_class_may_be_raised():
    use = "native._set_argument_error(Refused); print(raised(lambda: native.rms_norm(x, mx.zeros(8), -1.0)))"
    assert output_of(use, FIRST) == f"('Refused', {PARTS})\n"
    assert output_of(use, FIRST, SECOND) == f"('Refused', {PARTS})\n"
    assert output_of(use, SECOND, FIRST) == f"('Refused', {PARTS})\n"


def test_without_one_it_is_a_plain_value_error():
    text = "rms_norm: eps: got -1, expected a finite number of at least 0"
    use = "print(raised(lambda: native.rms_norm(x, mx.zeros(8), -1.0)))"
    assert output_of(use, FIRST) == f"('ValueError', {(text,)})\n"


def test_a_setting_of_the_process_has_no_operation(monkeypatch):
    monkeypatch.setenv("TINY_LLM_THREADS", "none")
    use = "native._set_argument_error(Refused); print(raised(native.cpu_threads))"
    expected = "a positive integer, or two such as 16,8: for prompts and for decoding"
    parts = ("", "TINY_LLM_THREADS", "'none'", expected)
    assert output_of(use, FIRST) == f"('Refused', {parts})\n"


@pytest.mark.parametrize("wrong", ["KeyError", "ValueError()"])
def test_only_a_subclass_of_value_error_is_accepted(wrong):
    output = output_of(f"print(raised(lambda: native._set_argument_error({wrong})))", FIRST)
    assert "_set_argument_error: cls: got " in output
    assert "expected a class of ValueErrors" in output
