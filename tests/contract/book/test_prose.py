"""`tools/check_prose.py`, part of `pdm run lint`, finds what it is for, and takes no code for prose."""

import pytest

from tools.check_prose import findings

from ...support.processes.child import ROOT, run_python


def complaints(text):
    return [f"{line}: {message}" for line, message in findings(text)]


@pytest.mark.parametrize("word", ["recieves", "atention", "neigbour", "The kernle's"])
def test_a_misspelt_word_is_found_with_its_line(word):
    assert complaints(f"# A page\n\nIt {word} a line.\n") == [f"3: unknown word: {word.split()[-1]}"]


def test_a_phrase_that_is_not_used_here_is_found_over_a_line_break():
    first, second = complaints("The thread lies\nawake.\n\nThe kernel wants keys.\n")
    assert first.startswith("1: 'lies awake': write \"waits\"")
    assert second.startswith("4: 'kernel wants': write ")


def test_words_of_the_field_and_british_spelling_are_known():
    assert complaints("Prefill, softmax and the logits' colours: a microkernel's neighbours.\n") == []


def test_code_formulas_and_links_are_no_prose():
    text = """A `qeury` and $\\qeury$, [here](https://example.org/qeury.md), in FlashAtention_2 with --qeury.

```python
qeury = 1
```

$$
\\qeury
$$
"""
    assert complaints(text) == []


def test_the_table_of_a_widget_is_prose():
    text = "```{widget} tile_map\n| qeury |\n|---|\n```\n\n`code`\n"
    assert complaints(text) == ["2: unknown word: qeury"]


def test_a_page_with_a_mistake_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("A qeury.\n")
    result = run_python("tools/check_prose.py", str(page))
    assert (result.returncode, result.stdout) == (1, f"{page}:1: unknown word: qeury\n")


def test_all_pages_are_spelt_right():
    result = run_python("tools/check_prose.py")
    pages = [*ROOT.glob("book/**/*.md"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    assert (result.returncode, result.stdout) == (0, f"{len(pages)} pages are spelt right.\n")
