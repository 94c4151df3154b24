"""The committed stub matches the bindings; its failure message has the command that renews it."""

import ast
import inspect

from ..support.processes.child import ROOT, run_python

STUB = "src/extensions/tiny_llm_ext/_ext.pyi"
RENEW = f"python -m nanobind.stubgen -m tiny_llm_ext._ext -o {STUB} && ruff format {STUB}"


def without_layout(source: str) -> str:
    """The program without line breaks, quotes and the indentation of docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = inspect.cleandoc(node.value)
    return ast.unparse(tree)


def test_the_stub_matches_the_build(tmp_path):
    fresh = tmp_path / "_ext.pyi"
    result = run_python("-m", "nanobind.stubgen", "-q", "-m", "tiny_llm_ext._ext", "-o", str(fresh))
    assert result.returncode == 0, result.stderr
    assert without_layout((ROOT / STUB).read_text()) == without_layout(fresh.read_text()), RENEW
