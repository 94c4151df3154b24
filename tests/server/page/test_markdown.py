"""Answers and questions in the browser: code in colour, formulas, and questions as they were meant."""

from __future__ import annotations

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine

pytestmark = pytest.mark.browser
CODE = """def f(a):
    '''Several
    # lines'''
    return a + 1  # one
"""
# A text in all its beginnings, and at once: [nodes of both, whether the first line's node stayed].
GROW = """async (text) => {
    const { CodeView } = await import("/page/markdown/code.js");
    const nodes = ({ element }) => { element.normalize(); return element.innerHTML; };
    const [grown, whole] = [new CodeView("py"), new CodeView("py")];
    let first = null;
    for (let end = 1; end <= text.length; end++) {
        grown.show(text.slice(0, end));
        if (text.slice(0, end).endsWith("\\n    r")) first = grown.element.firstChild;
    }
    const stayed = grown.element.firstChild === first;
    grown.show(text.trimEnd());
    whole.show(text.trimEnd());
    return [nodes(grown), nodes(whole), stayed];
}"""
PARTS = (
    "() => [...document.querySelectorAll('.code span[class]')].map((one) => [one.className, one.textContent])"
)


def test_code_is_in_colour_and_its_text_stays(page: ChatPage, engine: FakeEngine) -> None:
    engine.script, engine.delay = f"So:\n\n```python\n{CODE}```\n", 0.002
    page.ask("Code")
    assert page.evaluate(PARTS) == [
        ["keyword", "def"],
        ["string", "'''Several\n    # lines'''"],
        ["keyword", "return"],
        ["number", "1"],
        ["comment", "# one"],
    ]
    assert page.tab.locator(".code code").evaluate("(one) => one.textContent") == CODE.rstrip("\n")


def test_code_that_grows_is_the_same_as_at_once(page: ChatPage) -> None:
    grown, whole, stayed = page.evaluate(GROW, CODE)
    assert (grown, stayed) == (whole, True)


def test_formulas_are_drawn(page: ChatPage, engine: FakeEngine) -> None:
    shown = r"\[ \frac{QK^\top}{\sqrt{d_k}} \]"
    engine.script = rf"With $d_k$ and \(x^2\):" f"\n{shown}\n\n" r"Broken: $\frac{a$, it costs $5 or $6."
    text = page.ask("Attention?")
    assert page.tab.locator(".answer math").count() == 3
    sizes = page.evaluate(
        "() => [...document.querySelectorAll('math')].map((m) => m.getBoundingClientRect().height)"
    )
    assert sizes[2] > 1.5 * sizes[0], "a fraction, not a line"
    assert page.evaluate("() => document.querySelector('math').firstChild.namespaceURI").endswith("/MathML")
    assert "it costs $5 or $6." in text
    assert page.last("p code") == "\\frac{a"


def test_a_question_is_drawn_as_markdown_and_edited_as_it_was_written(
    page: ChatPage, engine: FakeEngine
) -> None:
    question = "Why **is** this `slow`?\n\n```py\nx = 1\n```\n\nif a:\n    b = 2"
    page.ask(question)
    bubble = page.tab.locator(".bubble")
    assert bubble.locator("strong").inner_text() == "is"
    assert bubble.locator("pre").inner_text() == "x = 1"
    assert bubble.inner_text().endswith("if a:\n    b = 2"), "columns stay"
    page.tab.locator(".question").hover()
    page.tab.get_by_role("button", name="Edit this question").click()
    assert page.tab.get_by_label("The question", exact=True).input_value() == question
