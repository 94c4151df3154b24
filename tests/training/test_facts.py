"""The facts that the embedded model learns about this project agree with README, commands and flags."""

import argparse
import re
import tomllib

import pytest

from tiny_llm.cli import COMMANDS, add_options
from training.text import blocks

from ..support.processes.child import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FACTS, TERMS = blocks("facts"), blocks("glossary")
ANSWERS = [entry["answer"] for entry in (*FACTS, *TERMS)]
TEXT = "\n".join(ANSWERS)
MACS = re.compile(r"\bMacs?\b|macOS|Apple GPU|Metal kernels")


def flags() -> set[str]:
    known = {"--week", "--day", "--compare"}  # of `pdm run test` and `pdm bench`
    for command in COMMANDS:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        add_options(parser, command)
        known |= set(parser._option_string_actions)
    return known


def test_every_command_exists():
    scripts = PROJECT["tool"]["pdm"]["scripts"]
    named = set(re.findall(r"pdm (?:run )?([a-z][a-z0-9-]*)", TEXT))
    assert named >= {"main", "test", "bench", "chat"}
    assert named - set(scripts) == set()
    assert set(re.findall(r"tiny-llm (chat|info|export|generate|batch|demo|bench)\b", TEXT)) <= set(COMMANDS)


def test_every_flag_exists():
    named = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    assert len(named) > 10
    assert named - flags() == set()


def test_python_and_license_are_those_of_the_package():
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=").split(",")[0]
    assert f"Python {oldest} or newer" in TEXT
    assert "Apache-2.0" in TEXT
    assert "Apache-2.0" in README


@pytest.mark.parametrize("name", ["README.md", "docs/tour.md", "LICENSE"])
def test_every_file_exists(name):
    assert name in TEXT
    assert (ROOT / name).is_file()


def test_platforms_are_those_of_the_table_in_readme():
    """README and the facts must change together."""
    rows = re.findall(r"^\| (.+?) \| .* \| (.+) \|$", README.split("## What runs where")[1], re.MULTILINE)
    states = dict(rows)
    assert "never run on a Mac" in states["macOS"]
    assert "emulator" in states["Linux Arm"]
    assert re.search(r"\| other GPUs \| none yet \| MLX's own operations run instead", README)
    about_macs = [answer for answer in ANSWERS if MACS.search(answer) and "way to" not in answer]
    promises = [a for a in about_macs if re.search(r"\b(tested|runs|works) (on|with) (a )?(Mac|macOS)", a)]
    assert len(about_macs) >= 4
    assert promises == []
    assert all("never" in a for a in ANSWERS if re.search(r"\b(on a Mac|Metal kernels,)", a))
    assert all("MLX's own" in a or "no kernels" in a for a in ANSWERS if "NVIDIA" in a and "tiny-llm" in a)
