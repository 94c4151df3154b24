"""The tour in the docs, run from top to bottom: it prints the output shown there."""

import re

from ..support.processes.child import ROOT, run_python

TOUR = ROOT / "docs" / "tour.md"
STEP = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.S)


def test_every_step_prints_the_output_shown_in_the_page():
    steps = STEP.findall(TOUR.read_text())
    assert len(steps) > 9
    code, printed = ("".join(part) for part in zip(*steps, strict=True))
    result = run_python("-c", code)
    assert result.stderr == ""
    assert result.stdout == printed


def test_no_step_is_left_out():
    text = TOUR.read_text()
    assert len(STEP.findall(text)) == text.count("```python")
    assert text.count("```") == 2 * (text.count("```python") + text.count("```text"))


def test_a_link_leads_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)\)", TOUR.read_text())
    assert targets
    assert [target for target in targets if not (TOUR.parent / target).exists()] == []
