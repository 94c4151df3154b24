"""The tests of the readable schedules find mistakes by name; each mistake is made in modules of its own."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from ..course import test_schedules
from ..support.processes.child import ROOT
from .mistake import Mistake
from .schedules import MISTAKES, SCHEDULES, TILES


def module_of(file: str, mistake: Mistake | None) -> ModuleType:
    """The module, with the mistake if it belongs there, instead of the one that is imported."""
    source = (ROOT / "src" / file).read_text()
    if mistake is not None and mistake.file == file:
        source = mistake.applied(source)
    module = ModuleType(file.removesuffix(".py").replace("/", "."))
    module.__package__ = module.__name__.rpartition(".")[0]
    sys.modules[module.__name__] = module  # dataclasses look there, and schedules.py imports the other
    exec(compile(source, file, "exec"), module.__dict__)
    return module


@pytest.fixture
def schedules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for file in (TILES, SCHEDULES):
        monkeypatch.setitem(sys.modules, file.removesuffix(".py").replace("/", "."), None)
    for file in (TILES, SCHEDULES):
        module = module_of(file, request.param)
    return module


@pytest.mark.parametrize("name", ["flash_attention_v1", "flash_attention_v2"])
@pytest.mark.parametrize(
    ("schedules", "test"), [pytest.param(m, m.caught_by, id=m.name) for m in MISTAKES], indirect=["schedules"]
)
def test_a_mistake_is_found_by_name(schedules, test, name):
    with pytest.raises(AssertionError):
        getattr(test_schedules, test)(getattr(schedules, name))


@pytest.mark.parametrize("schedules", [None], indirect=True)
@pytest.mark.parametrize("test", sorted({mistake.caught_by for mistake in MISTAKES}))
def test_without_a_mistake_the_tests_pass(schedules, test):
    getattr(test_schedules, test)(schedules.flash_attention_v2)
