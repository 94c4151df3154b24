"""Dark and light, the width of a phone, and use with the keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer
from .conftest import Open

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 375, "height": 667}, "has_touch": True, "is_mobile": True}
WIDE = f"""A{"a" * 300} `{"b" * 300}` https://example.org/{"c" * 300}

```
{"d" * 300}
```

| {" | ".join("column" for _ in range(12))} |
|{"---|" * 12}
| {" | ".join("value" for _ in range(12))} |

1. - > {"e" * 200}
- ${" + ".join(["x"] * 60)}$

A long ${" + ".join(["x"] * 60)}$ and

$${" + ".join(["x"] * 60)}$$
"""
# The contrast of each text with what is behind it, as WCAG computes it; the lowest with its text.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [r, g, b] = [...rgb(color)].map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const { backgroundColor } = getComputedStyle(one);
      if (rgb(backgroundColor)[3] === 255) return backgroundColor;
    }
  };
  let lowest = [99, ""];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.checkVisibility() || one.closest(".off-screen, option")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < lowest[0]) lowest = [contrast, one.textContent];
  }
  return lowest;
}"""
MANY = """# Title
`code`, [link](https://example.org/) and $x_1 + \\frac{1}{2}$

```py
def double(x):  # twice
    return x * 2 + len("two")
```

$$\\sum_{i=1}^n \\sqrt{x_i}$$

> quoted
"""
BRIGHTNESS = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_are_readable(
    new_page: Open, served: RunningServer, engine: FakeEngine, scheme: str
) -> None:
    page = new_page(served, color_scheme=scheme).open()
    assert (page.evaluate(BRIGHTNESS) < 60) == (scheme == "dark")
    engine.script = MANY
    page.ask(MANY)
    for drawer in ("settings", "live"):
        page.tab.click(f"#show-{drawer}")
        contrast, text = page.evaluate(CONTRAST)
        assert contrast >= 4.5, text


def test_the_switch_of_the_colours_is_kept(page: ChatPage) -> None:
    button = page.tab.locator("#theme")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.get_attribute("aria-label"), page.evaluate(BRIGHTNESS) < 60))
    assert seen == [("Colours: light", False), ("Colours: dark", True), ("Colours: as the system", False)]
    button.click()
    button.click()
    page.open()
    assert page.evaluate(BRIGHTNESS) < 60


def outside(page: ChatPage) -> Any:
    """Elements that are seen and reach beyond the window, which nothing can scroll to."""
    return page.evaluate("""() => [...document.querySelectorAll("body *")].filter((one) => {
        const { right, left, width } = one.getBoundingClientRect();
        const ownScroll = ".code pre, .table, .formula, p:has(> math)";
        const scrolled = one.closest(`${ownScroll}, .off-screen, #backdrop, [hidden], svg`);
        return width > 0 && !scrolled && one.checkVisibility() && (right > innerWidth + 1 || left < -1);
    }).map((one) => one.outerHTML.slice(0, 80))""")


def test_a_phone_needs_no_scrolling_to_the_side(
    new_page: Open, served: RunningServer, engine: FakeEngine
) -> None:
    page = new_page(served, **PHONE).open()
    width = "() => Math.max(...['html', '#scroller'].map((one) => document.querySelector(one).scrollWidth))"
    assert (page.evaluate(width), outside(page)) == (375, [])
    engine.script = WIDE
    page.ask("q" * 300)
    assert (page.evaluate(width), outside(page)) == (375, [])
    for drawer in ("conversations", "settings", "live"):
        page.tab.click(f"#show-{drawer}")
        assert (page.evaluate(width), outside(page)) == (375, []), drawer
        page.tab.locator(f"#{drawer} .close").click()
    page.tab.locator("#top .new-conversation").click()
    assert page.texts == []


def focused(page: ChatPage) -> str:
    name: str = page.evaluate("() => document.activeElement.id || document.activeElement.className")
    return name


def tab_to(page: ChatPage, wanted: str) -> None:
    """Press Tab until the element with this id or class has the focus, which must be seen."""
    for _ in range(40):
        page.tab.keyboard.press("Tab")
        if wanted in focused(page).split():
            seen = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            assert seen != "none" or wanted == "question"  # its box has the outline
            return
    raise AssertionError(f"Tab does not reach {wanted}")


def test_the_keyboard_alone_is_enough(page: ChatPage, engine: FakeEngine) -> None:
    press = page.tab.keyboard.press
    assert focused(page) == "question"
    page.tab.keyboard.type("One")
    press("Shift+Enter")
    page.tab.keyboard.type("line two")
    assert page.texts == []
    press("Enter")
    page.answer()
    assert page.texts[0] == "One\nline two"
    press("Enter")
    assert len(page.texts) == 2, "nothing is sent"
    tab_to(page, "new-conversation")
    tab_to(page, "show-settings")
    press("Enter")
    assert page.tab.locator("#settings").is_visible()
    press("Escape")
    assert page.tab.locator("#settings").is_hidden()
    assert focused(page) == "show-settings"
    tab_to(page, "icon-button")
    page.tab.locator(".question .icon-button").focus()
    press("Enter")
    page.tab.keyboard.type(" more")
    press("Enter")
    page.answer()
    assert page.texts[0] == "One\nline two more"
    assert focused(page) == "question"
    press("Shift+Tab")
    press("Shift+Tab")
    engine.script = "Again."
    page.tab.get_by_role("button", name="Answer again").press("Enter")
    page.wait("document.querySelector('.turn:last-child .markdown').innerText === 'Again.'")


def test_everything_has_a_name_and_answers_are_announced(page: ChatPage) -> None:
    page.ask("One")
    for drawer in ("settings", "live"):
        page.tab.click(f"#show-{drawer}")
        nameless = page.evaluate("""() => {
            const labelled = (one) => one.getAttribute("aria-label") || one.labels?.length;
            const named = (one) => labelled(one) || one.textContent.trim();
            const all = [...document.querySelectorAll("button, input, textarea, select")];
            return all.filter((one) => !named(one)).map((one) => one.outerHTML);
        }""")
        assert nameless == []
    assert page.tab.locator("[role=status]#status").inner_text() == "The answer is **forty-two**."
    assert page.tab.locator("[role=log]").get_attribute("aria-label") == "Conversation"


def test_a_question_mark_shows_the_keys(page: ChatPage) -> None:
    press = page.tab.keyboard.press
    keys = page.tab.get_by_role("dialog", name="Keys")
    press("?")
    assert page.tab.input_value("#question") == "?", "it is written where one writes"
    page.tab.locator("#theme").focus()
    press("?")
    keys.wait_for()
    contrast, text = page.evaluate(CONTRAST)
    assert contrast >= 4.5, text
    press("Escape")
    assert keys.is_hidden()
    assert focused(page) == "theme"
    press("/")
    assert focused(page) == "question"
    page.tab.get_by_role("button", name="All keys").click()
    keys.get_by_role("button", name="Close").click()
    assert keys.is_hidden()


# How far the first thing that is seen below the last answer is from the left edge of its text, and how much
# texts there differ in height.
FOOT = """() => {
  const foot = document.querySelector(".turn:last-child footer");
  const inside = (one) => {
    const range = document.createRange();
    range.selectNodeContents(one.querySelector("svg") ?? one);
    return (one.querySelector("svg") ?? range).getBoundingClientRect();
  };
  const shown = [...foot.children].filter((one) => one.checkVisibility());
  const texts = shown.filter((one) => one.textContent).map(inside);
  const middles = texts.map(({ top, bottom }) => (top + bottom) / 2);
  const left = inside(shown[0]).left - foot.parentElement.getBoundingClientRect().left;
  return [left, Math.max(...middles) - Math.min(...middles)];
}"""


def test_the_line_below_an_answer_begins_where_its_text_does(page: ChatPage, engine: FakeEngine) -> None:
    page.ask("One")
    assert page.evaluate(FOOT) == pytest.approx([0, 0], abs=0.6)
    engine.delay = 5
    page.begin("Stopped before its first word")
    page.wait("document.querySelectorAll('.answer').length === 2")
    page.tab.keyboard.press("Escape")
    page.answer()
    assert page.last(".stats") == "stopped"
    assert page.evaluate(FOOT) == pytest.approx([0, 0], abs=0.6)
    page.tab.set_viewport_size({"width": 375, "height": 667})
    foot, stats = (page.tab.locator(f".answer {one}").first.bounding_box() for one in ("footer", ".stats"))
    assert stats["y"] > foot["y"] + 20, "a second line"
    assert stats["x"] == foot["x"]
    page.evaluate("() => { document.querySelector('.turn:last-child footer').children[1].hidden = true }")
    assert page.evaluate(FOOT) == pytest.approx([0, 0], abs=0.6), "an earlier answer"


def test_code_can_be_copied(new_page: Open, served: RunningServer, engine: FakeEngine) -> None:
    page = new_page(served, permissions=["clipboard-read", "clipboard-write"]).open()
    engine.script = "So:\n\n```py\nif a < b:\n    print('&lt;')\n```\n"
    page.ask("Code")
    page.tab.get_by_role("button", name="Copy the code").click()
    page.tab.get_by_text("Copied").first.wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == "if a < b:\n    print('&lt;')"
