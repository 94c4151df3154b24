"""Hostile answers stay text, the policy is in force, and the key stays where the reader wants it."""

from __future__ import annotations

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer, running
from .conftest import Open

pytestmark = pytest.mark.browser
HOSTILE = """<script>alert(1)</script> <img src=x onerror=alert(2)>
[a](javascript:alert(3)) [b](JaVaScRiPt:alert(4)) [c](data:text/html,<script>alert(5)</script>)
[d](/v1/models)
![e](http://elsewhere.example/pixel.png) <svg onload=alert(6)> <a href="javascript:alert(7)">f</a>

```<img onerror=alert(8)>
</code></pre><script>alert(9)</script>
```

| <b>x</b> | y |
|---|---|
| <iframe src=//elsewhere.example> | `</code><script>alert(10)</script>` |

```html
<script>alert(12)</script><a href="javascript:alert(13)">
```

$\\href{javascript:alert(14)}{x} \\text{<script>alert(15)</script>}$

- <style>*{display:none}</style>
# <h1 onclick=alert(11)>

[good](https://good.example/path) <form action=//elsewhere.example><input name=q></form>
"""
ALLOWED = """a br blockquote button code del div em h3 h4 h5 h6 hr li ol p pre span strong table tbody td th
thead tr ul math mi mn mo mrow mtext"""


def test_a_hostile_answer_stays_text(page: ChatPage, engine: FakeEngine) -> None:
    engine.script = HOSTILE
    text = page.ask("<img src=x onerror=alert(0)> **bold**")
    assert page.texts[0] == "<img src=x onerror=alert(0)> bold"
    for harmless in (
        "<script>alert(1)</script>",
        "[a](javascript:alert(3))",
        "<iframe src=//elsewhere.example>",
    ):
        assert harmless in text
    names = page.evaluate("() => [...document.querySelectorAll('.markdown *')].map((one) => one.localName)")
    assert set(names) <= set(ALLOWED.split())
    links = page.evaluate(
        "() => [...document.querySelectorAll('.markdown a')].map(({href, rel}) => [href, rel])"
    )
    rel = "noopener noreferrer nofollow"
    assert links == [["http://elsewhere.example/pixel.png", rel], ["https://good.example/path", rel]]
    handlers = """() => [...document.querySelectorAll('.turn, .turn *')].flatMap((one) => [...one.attributes])
        .filter(({name}) => name.startsWith('on') || name === 'style').length"""
    assert page.evaluate(handlers) == 0
    page.open()
    assert page.last(".markdown") == text, "also when it comes from the storage"


def test_the_policy_is_in_force(page: ChatPage) -> None:
    tried = """async () => {
        window.broken = [];
        const note = ({ effectiveDirective }) => window.broken.push(effectiveDirective);
        document.addEventListener("securitypolicyviolation", note);
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        const style = document.createElement("style");
        style.textContent = "body { color: red }";
        const image = new Image();
        image.src = "http://elsewhere.example/pixel.png";
        document.body.append(script, style, image);
        const frame = document.createElement("iframe");
        frame.src = "/";
        document.body.append(frame);
        await fetch("http://elsewhere.example/").catch(() => {});
        await new Promise((done) => setTimeout(done, 200));
        return [window.ran, window.broken.sort()];
    }"""
    ran, broken = page.evaluate(tried)
    assert ran is None
    expected = ["connect-src", "frame-src", "img-src", "script-src-elem", "style-src-elem"]
    assert [directive for directive in expected if directive not in broken] == []
    page.expect_problems("Content Security Policy|request to http://elsewhere.example")


@pytest.fixture
def locked() -> RunningServer:
    with running(FakeEngine(script="Inside."), api_keys=("right",)) as started:
        yield started


def give_key(page: ChatPage, key: str, *, keep: bool = False) -> None:
    page.tab.get_by_label("Key", exact=True).fill(key)
    page.tab.get_by_label("Keep it in this browser").set_checked(keep)
    page.tab.keyboard.press("Enter")


@pytest.mark.parametrize("keep", [False, True])
def test_the_key_is_asked_for_and_kept_only_on_request(
    new_page: Open, locked: RunningServer, keep: bool
) -> None:
    page = new_page(locked)
    page.tab.goto(locked.url)
    dialog = page.tab.get_by_role("dialog", name="This server needs a key")
    dialog.wait_for()
    assert page.tab.get_by_text("does not know this key").is_hidden()
    give_key(page, "wrong")
    page.tab.get_by_text("does not know this key").wait_for()
    give_key(page, "right", keep=keep)
    page.tab.wait_for_selector("#model option", state="attached")
    assert page.ask("Hello") == "Inside."
    kept = page.evaluate("() => [...Object.values(localStorage), ...Object.values(sessionStorage)].join()")
    assert ("right" in kept) == keep
    page.tab.reload()
    if keep:
        page.tab.wait_for_selector("#model option", state="attached")
        assert dialog.is_hidden()
    else:
        dialog.wait_for()
    page.expect_problems("401")


def test_without_the_key_the_page_says_so_and_asks_again(new_page: Open, locked: RunningServer) -> None:
    page = new_page(locked)
    page.tab.goto(locked.url)
    page.tab.get_by_role("button", name="Cancel").click()
    page.tab.get_by_text("The server needs a key.").wait_for()
    page.begin("Hello")
    page.tab.get_by_role("dialog").wait_for()
    page.tab.keyboard.press("Escape")
    page.tab.get_by_role("button", name="Try again").click()
    give_key(page, "right")
    assert page.answer() == "Inside."
    page.expect_problems("401")
