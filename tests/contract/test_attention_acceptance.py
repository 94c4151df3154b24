"""docs/attention-acceptance.md: every item and every defect has tests, and each test that it names exists."""

import ast
import functools
import re
import string

import pytest

from ..support.processes.child import ROOT

PAGE = (ROOT / "docs/attention-acceptance.md").read_text()
# An item is "### 7. Masks", a defect "### (g) Offsets have 32 bits"; a line below names a file and its tests.
SECTIONS = {
    found[1]: text
    for found, text in ((re.match(r"\(?(\w+)", x), x) for x in PAGE.split("\n### ")[1:])
    if found
}
NAMED = [
    (section, file, test)
    for section, text in SECTIONS.items()
    for file, tests in re.findall(r"^- `([^`]+)`: (.*)$", text, re.M)
    for test in re.findall(r"`([^`]+)`", tests)
]


@functools.cache
def defined_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_all_items_and_defects_are_there():
    assert list(SECTIONS) == [*map(str, range(1, 30)), *string.ascii_lowercase]


@pytest.mark.parametrize("section", SECTIONS)
def test_each_has_tests_that_exist(section):
    named = [(file, test) for where, file, test in NAMED if where == section]
    assert named
    assert [(file, test) for file, test in named if test not in defined_in(file)] == []


def test_no_test_is_named_in_another_form():
    """Else it would not be checked."""
    assert len(re.findall(r"`test_\w+`", PAGE)) == len(NAMED)
