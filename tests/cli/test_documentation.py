"""docs/command-line.md: its commands are real, and it leaves out none."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from tiny_llm.cli import COMMANDS, add_options, exit_codes
from tiny_llm.models.names import SHORTCUTS

from ..support.processes.child import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text()
EXAMPLES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_parsed(line: str) -> None:
    program, command, *flags = shlex.split(line.partition(" < ")[0])
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_options(parser, command)
    parser.parse_args(flags)
    assert program == "tiny-llm"


def test_every_command_shortcut_and_exit_code_is_there() -> None:
    assert [name for name in COMMANDS if f"`tiny-llm {name}`" not in PAGE] == []
    assert [name for name in SHORTCUTS if f"`{name}`" not in PAGE] == []
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)}
    assert codes == {0, exit_codes.FAILED, exit_codes.REFUSED, exit_codes.INTERRUPTED, exit_codes.BROKEN_PIPE}
