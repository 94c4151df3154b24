"""`from tiny_llm import *`, and the two ways to import the extension."""

import types
from importlib import metadata

import mlx.core as mx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tiny_llm

from ..support.processes.child import ROOT, run_python
from .names import LAYERS, SIGNATURES
from .project import pyproject

SUBMODULES = {
    path.stem
    for path in (ROOT / "src" / "tiny_llm").iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
} - {"__init__", "__main__"}
COURSE_MODULES = {line.split(".")[0] for line in SIGNATURES + LAYERS}


def test_the_star_set_has_every_submodule_that_is_taught_and_mx():
    assert {"mx"} | COURSE_MODULES <= set(tiny_llm.__all__)
    assert tiny_llm.mx is mx


def test_every_name_of_the_star_set_exists_once():
    assert len(set(tiny_llm.__all__)) == len(tiny_llm.__all__)
    assert [name for name in tiny_llm.__all__ if not hasattr(tiny_llm, name)] == []


def test_the_version_is_listed_with_the_names():
    assert {"__version__", "LLM", *tiny_llm.__all__} <= set(dir(tiny_llm))


def test_no_function_or_class_has_the_name_of_a_submodule():
    hidden = [
        name for name in SUBMODULES if not isinstance(getattr(tiny_llm, name, tiny_llm), types.ModuleType)
    ]
    assert hidden == []


@pytest.mark.parametrize(
    "program",
    [
        "from tiny_llm import *; attention.flash_attention; mx.array; softmax",
        "from extensions import tiny_llm_ext; tiny_llm_ext.cpu_isa()",
        "import tiny_llm_ext; tiny_llm_ext.cpu_isa()",
        "from extensions import tiny_llm_ext as a; import tiny_llm_ext as b; assert dir(a) == dir(b)",
        "import tiny_llm, sys; assert 'tiny_llm_ext._ext' not in sys.modules, 'loaded before it is needed'",
        "import tiny_llm, sys; assert 'tiny_llm.loading' not in sys.modules, 'attention reads no models'",
        "import tiny_llm, sys; assert 'mlx.nn' not in sys.modules, 'only tiny_llm.nn needs it'",
        "import tiny_llm; tiny_llm.nn.FlashAttentionV2(8, 2)",
        "from tiny_llm import LLM, load; import tiny_llm; assert {'LLM', 'load'} <= set(dir(tiny_llm))",
    ],
)
def test_in_a_fresh_process(program):
    result = run_python("-c", program)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "command",
    [["--help"], ["serve", "--help"], ["generate", "--prompt", "Hello", "--max-tokens", "1"]],
    ids=lambda command: command[0],
)
def test_commands_that_serve_import_no_tools(command):
    program = f"""
import sys
from tiny_llm.cli import main
try:
    main({command})
except SystemExit:
    pass
assert not [name for name in sys.modules if name.startswith("tiny_llm_tools")]
"""
    result = run_python("-c", program)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_folder_of_the_extension_is_a_namespace_package():
    assert not (ROOT / "src" / "extensions" / "__init__.py").exists()


def required(requirement: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The packages that pip would install for a requirement of a package with these extras."""
    wanted = Requirement(requirement)
    if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras | {""}):
        return set()
    found = {canonicalize_name(wanted.name)}
    for other in metadata.requires(wanted.name) or []:
        found |= required(other, frozenset(wanted.extras))
    return found


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path, target=None):
        if name in {absent}:
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Absent())
sys.argv[0] = "tiny-llm"
from tiny_llm import *
from tiny_llm.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "arguments", [("info", "--json"), ("generate", "--max-tokens", "1")], ids=lambda words: words[0]
)
def test_nothing_is_needed_that_the_package_does_not_require(arguments):
    """Tools of development are installed here, but not where `pip install` has put the package."""
    packages = {"tiny-llm"}.union(*map(required, pyproject()["project"]["dependencies"]))
    absent = {
        module
        for module, names in metadata.packages_distributions().items()
        if not packages & set(map(canonicalize_name, names))
    }
    assert {"pytest", "mlx_lm", "starlette", "numpy"} <= absent
    result = run_python("-c", WITHOUT.format(absent=absent), *arguments)
    assert result.returncode == 0, result.stderr
