"""Errors have fields, their text is made from the fields, and no code parses the text of an error."""

import ast
import copy
import pickle

import mlx.core as mx
import pytest

import tiny_llm
from tiny_llm.errors import ArgumentError, ArgumentTypeError, RefusedArgument, TinyLlmError, UnsupportedError
from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.loading import LoadError
from tiny_llm.sampling.params import Sampling
from tiny_llm.sampling.stop import StopStrings

from ..support.processes.child import ROOT

SOURCES = sorted(
    path for name in ("tiny_llm", "tiny_llm_tools") for path in (ROOT / "src" / name).rglob("*.py")
)
BUILT_IN = {"ValueError", "TypeError", "NotImplementedError"}
# The JSON parser raises its own errors; a call that does not fit a signature has Python's text.
PYTHON_RAISES = {
    "src/tiny_llm/loading/files.py: ValueError",
    "src/tiny_llm/ops/explanation.py: TypeError",
}


@pytest.mark.parametrize(
    ("call", "kind", "fields", "text"),
    [
        (
            lambda: tiny_llm.softmax(mx.zeros((2, 3)), 5),
            ArgumentError,
            ("softmax", "axis", "5", "an axis of shape (2, 3)"),
            "softmax: axis: got 5, expected an axis of shape (2, 3)",
        ),
        (
            lambda: tiny_llm.silu([1.0]),
            ArgumentTypeError,
            ("silu", "x", "a list", "an mlx array"),
            "silu: x: got a list, expected an mlx array",
        ),
        (
            lambda: tiny_llm.silu(mx.zeros(3, dtype=mx.int32)),
            ArgumentError,
            ("silu", "x", "int32", "a floating point type"),
            "silu: x: got int32, expected a floating point type",
        ),
        (
            lambda: TinyKvFullCache().update_and_fetch_paged(mx.zeros((1, 1, 1, 1)), mx.zeros((1, 1, 1, 1))),
            UnsupportedError,
            ("TinyKvFullCache", "", "a call for pages", "a cache that keeps its tokens in pages"),
            "TinyKvFullCache: got a call for pages, expected a cache that keeps its tokens in pages",
        ),
        (
            lambda: BatchingKvCache(2, 8).add_request(TinyKvFullCache(), 2),
            ArgumentError,
            ("BatchingKvCache", "id", "2", "0 to 1"),
            "BatchingKvCache: id: got 2, expected 0 to 1",
        ),
        (
            lambda: Sampling(temp=-1),
            ArgumentError,
            ("Sampling", "temp", "-1", "a finite number of at least 0"),
            "Sampling: temp: got -1, expected a finite number of at least 0",
        ),
        (
            lambda: StopStrings([""]),
            ArgumentError,
            ("", "stop", "['']", "strings of at least one character"),
            "stop: got [''], expected strings of at least one character",
        ),
    ],
)
def test_an_error_has_its_fields_and_text(call, kind, fields, text):
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert (error.operation, error.argument, error.got, error.expected) == fields
    assert str(error) == text
    assert text.endswith(error.reason)


@pytest.mark.parametrize("kind", [ArgumentError, ArgumentTypeError, UnsupportedError])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_a_copy(kind, copied):
    error = copied(kind("scale", "x", mx.float16, (1, 2)))
    assert type(error) is kind
    assert (error.got, error.expected) == (str(mx.float16), "(1, 2)")
    assert str(error) == f"scale: x: got {mx.float16}, expected (1, 2)"


def test_all_errors_have_one_base_class_and_a_class_of_python():
    kinds = {ArgumentError: ValueError, ArgumentTypeError: TypeError, UnsupportedError: NotImplementedError}
    for kind, built_in in kinds.items():
        assert issubclass(kind, RefusedArgument)
        assert issubclass(kind, built_in)
    assert issubclass(RefusedArgument, TinyLlmError)
    assert issubclass(LoadError, TinyLlmError)


def test_every_error_is_raised_with_fields():
    raised = {
        f"{path.relative_to(ROOT)}: {node.exc.func.id}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if isinstance(node.exc.func, ast.Name) and node.exc.func.id in BUILT_IN
    }
    assert raised - PYTHON_RAISES == set()


def test_no_text_of_an_error_is_parsed():
    taken = ("split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "startswith")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in taken and ast.unparse(node.value) == "str(error)"
    ]
    assert found == []
