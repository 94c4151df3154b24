"""The names in names.py exist, with their parameters, order and defaults."""

import ast
import functools
import importlib
import inspect

import pytest

import tiny_llm
import tiny_llm_ext

from ..contract import names
from ..support.processes.child import ROOT
from .project import pyproject


def parse_signature(line: str) -> tuple[str, ast.arguments]:
    name, _, parameters = line.partition("(")
    function = ast.parse(f"def f({parameters}: ...").body[0]
    return name, function.args


def positional(arguments: ast.arguments) -> list[tuple[str, object]]:
    """Pairs of name and default, Parameter.empty where there is none."""
    missing = len(arguments.args) - len(arguments.defaults)
    defaults = [inspect.Parameter.empty] * missing + [ast.literal_eval(node) for node in arguments.defaults]
    return [(argument.arg, default) for argument, default in zip(arguments.args, defaults, strict=True)]


def resolve(root: object, path: list[str]) -> object:
    return functools.reduce(getattr, path, root)


@pytest.mark.parametrize("line", names.SIGNATURES + names.LAYERS)
def test_a_signature_starts_with_the_parameters_of_the_course(line):
    path, wanted = parse_signature(line)
    module, *name = path.split(".")
    function = resolve(importlib.import_module(f"tiny_llm.{module}"), name)
    parameters = list(inspect.signature(function).parameters.values())
    by_position = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [(p.name, p.default) for p in by_position] == positional(wanted)
    more = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert all(p.default is not p.empty for p in more)


@pytest.mark.parametrize("line", names.SIGNATURES)
def test_the_package_exports_the_name(line):
    module, *name = parse_signature(line)[0].split(".")
    assert resolve(tiny_llm, name) is resolve(importlib.import_module(f"tiny_llm.{module}"), name)


def test_the_extension_has_its_names():
    assert {name for name in names.NATIVE_NAMES if not callable(getattr(tiny_llm_ext, name, None))} == set()


@pytest.mark.parametrize("line", names.BINDINGS)
def test_a_binding_has_its_parameters_in_this_order(line):
    stub = ast.parse((ROOT / "src/extensions/tiny_llm_ext/_ext.pyi").read_text())
    name, wanted = parse_signature(line)
    (found,) = [node for node in stub.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert positional(found.args) == positional(wanted)
    assert [argument.arg for argument in found.args.kwonlyargs] == [a.arg for a in wanted.kwonlyargs]
    required = [default is None for default in found.args.kw_defaults]
    assert required == [default is None for default in wanted.kw_defaults]


@pytest.mark.parametrize("path", names.PATHS)
def test_a_file_of_the_course_exists(path):
    assert (ROOT / path).is_file()


def test_the_scripts_exist():
    assert names.SCRIPTS - set(pyproject()["tool"]["pdm"]["scripts"]) == set()


def test_the_helpers_of_the_course_tests_exist():
    helpers = importlib.import_module("..utils", __package__)
    assert {name for name in names.TEST_HELPERS if not hasattr(helpers, name)} == set()
