"""A plugin of pytest: the file of --running has the name of the test that runs, for the report of a crash."""

from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--running", type=Path, required=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    file: Path = item.config.getoption("--running")
    file.write_text(item.nodeid)
    try:
        return (yield)
    finally:
        file.write_text("")
