"""The committed stub says what the bindings offer; renew it with the command in its failure message."""

import ast
import inspect

from ..support.processes.child import ROOT, run_python

STUB = "src/extensions/tiny_llm_ext/_ext.pyi"
RENEW = f"python -m nanobind.stubgen -m tiny_llm_ext._ext -o {STUB} && ruff format {STUB}"


def without_layout(source: str) -> str:
    """The program itself: line breaks, quotes and the indentation of docstrings do not count."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = inspect.cleandoc(node.value)
    return ast.unparse(tree)


def test_the_stub_is_the_one_of_this_build(tmp_path):
    fresh = tmp_path / "_ext.pyi"
    result = run_python("-m", "nanobind.stubgen", "-q", "-m", "tiny_llm_ext._ext", "-o", str(fresh))
    assert result.returncode == 0, result.stderr
    assert without_layout((ROOT / STUB).read_text()) == without_layout(fresh.read_text()), RENEW
