"""The pool of pages: its model against pool, prefix index and page tables of tiny_llm, and its controls."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.cache.prefix_index import PrefixIndex
from tiny_llm.scheduler import RequestState
from tiny_llm.scheduler.page_allocator import PageAllocator

pytestmark = pytest.mark.browser

PAGES, PAGE_SIZE, RESERVED = 12, 4, 24
COMMON = "Be kind . Answer in one line ."
QUESTIONS = ("Who was Ada ?", "Why is the sky blue ?", "What is a page ?")
STORY = "Story 1 : a fox and a crow ."
ANSWER = "a page is kind to the one blue fox in the sky .".split()
VOCABULARY = list(dict.fromkeys([*COMMON.split(), *" ".join(QUESTIONS).split(), *STORY.split(), *ANSWER]))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# What the table of the chapter, for readers without scripts, shows.
SCRIPT = [
    ("question", None),
    ("question", None),
    ("append", "A"),
    ("fork", "B"),
    ("append", "B"),
    ("finish", "A"),
    ("question", None),
]


def fnv1a(data: bytes) -> bytes:
    """The widget's digest, in place of BLAKE2."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 % 2**32
    return value.to_bytes(4, "little")


class RealPool:
    """Does the widget's actions with the classes of the engine."""

    def __init__(self) -> None:
        self.pool = PagePool(PAGES, PAGE_SIZE)
        self.index = PrefixIndex(PAGE_SIZE, digest=fnv1a)
        self.tables = PageAllocator(self.pool, self.index)
        self.states: dict[str, RequestState] = {}
        self.counts = {"question": 0, "story": 0}
        self.named = 0

    def act(self, action: str, name: str | None) -> bool:
        """False if there is no room, and nothing has changed."""
        if action in self.counts:
            return self._add(action)
        return getattr(self, f"_{action}")(name)

    def seen(self) -> dict[str, Any]:
        self.tables.check(self.states.values())
        owners = [self.pool.owners(page) for page in range(PAGES)]
        kept = list(self.pool._cached)
        return {
            "tables": {name: list(state.pages) for name, state in self.states.items()},
            "texts": {name: list(state.token_ids) for name, state in self.states.items()},
            "cached": {name: state.cached_tokens for name, state in self.states.items()},
            "owners": owners,
            "names": [
                self.index._keys[page].hex() if page in self.index._keys else None for page in range(PAGES)
            ],
            "states": [
                "used" if owners[page] else "kept" if self.pool.has_content(page) else "blank"
                for page in range(PAGES)
            ],
            "kept": kept,
            "stored": {
                "tokens": sum(len(state.token_ids) for state in self.states.values()),
                "paged": PAGE_SIZE * self.pool.num_used,
                "dense": sum(
                    RESERVED if len(s.token_ids) <= RESERVED else 2 * RESERVED for s in self.states.values()
                ),
            },
        }

    def _add(self, kind: str) -> bool:
        text = STORY if kind == "story" else f"{COMMON} {QUESTIONS[self.counts[kind] % len(QUESTIONS)]}"
        ids = [VOCABULARY.index(word) for word in text.split()]
        if kind == "story":
            ids[1] = len(VOCABULARY) + self.counts[kind]
        state = RequestState("", ids, max_tokens=100)
        if not self.tables.start(state, spare=0):
            return False
        state.cached_tokens = state.computed
        state.computed = len(ids)
        self.tables.register(state)
        self.counts[kind] += 1
        self.states[self._new_name()] = state
        return True

    def _append(self, name: str) -> bool:
        state = self.states[name]
        token = ANSWER[(state.computed + 5 * state.choice) % len(ANSWER)]
        if not self.tables.grow(state, []):
            return False
        state.token_ids.append(VOCABULARY.index(token))
        state.computed += 1
        self.tables.register(state)
        return True

    def _fork(self, name: str) -> bool:
        other = self.states[name].fork(self.named + 1)
        self.tables.share(other)
        self.states[self._new_name()] = other
        return True

    def _finish(self, name: str) -> bool:
        self.tables.release(self.states.pop(name))
        return True

    def _new_name(self) -> str:
        turn, letter = divmod(self.named, len(LETTERS))
        self.named += 1
        return LETTERS[letter] + (str(turn + 1) if turn else "")


def random_history(seed: int, length: int = 60) -> list[dict[str, Any]]:
    numbers, real, steps = random.Random(seed), RealPool(), []
    for _ in range(length):
        actions = ["question", "story", "append", "append", "append", "fork", "finish"]
        action = numbers.choice(actions if real.states else ["question", "story"])
        name = None if action in real.counts else numbers.choice(list(real.states))
        done = real.act(action, name)
        steps.append({"action": action, "name": name, "refused": not done, "after": real.seen()})
    return steps


def test_the_model_does_what_the_engine_does(run_model):
    histories = [random_history(seed) for seed in range(25)]
    steps = [step for history in histories for step in history]
    assert any(step["refused"] for step in steps)
    assert any(step["after"]["kept"] for step in steps)
    assert any(max(step["after"]["owners"]) > 2 for step in steps)
    run_model("paged_kv", histories)


def script_rows() -> list[list[str]]:
    real, rows = RealPool(), []
    for action, name in SCRIPT:
        assert real.act(action, name)
        seen = real.seen()
        tables = "; ".join(f"{each}: {' '.join(map(str, pages))}" for each, pages in seen["tables"].items())
        shared = " ".join(str(page) for page, owners in enumerate(seen["owners"]) if owners > 1) or "–"
        kept = " ".join(map(str, seen["kept"])) or "–"
        words = {"question": "add a question", "append": "append to", "fork": "fork", "finish": "finish"}[
            action
        ]
        stored = seen["stored"]
        rows.append(
            [f"{words} {name or ''}".strip(), tables, shared, kept, f"{stored['paged']} ({stored['dense']})"]
        )
    return rows


def test_the_table_without_scripts_is_what_the_engine_does(open_page):
    page = open_page("week4/day3", scripts=False)
    lines = page.locator("figure[data-widget=paged_kv] tbody tr").all()
    assert [line.locator("td").all_inner_texts() for line in lines] == script_rows()


@pytest.fixture
def widget(open_widget):
    return open_widget("week4/day3", "paged_kv")


def heads(widget, kind):
    return [card.locator("b").inner_text() for card in widget.locator(f".slots.{kind}").all()]


def press(widget, label):
    widget.get_by_role("button", name=label, exact=True).click()


def test_a_shared_beginning_is_stored_once_and_copied_on_write(widget):
    press(widget, "Add a question")
    press(widget, "Add a question")
    assert heads(widget, "shared") == ["0", "1"]
    assert "pages 0, 1 are found" not in widget.locator(".sentence").inner_text()
    assert "(pages 0, 1)" in widget.locator(".sentence").inner_text()
    press(widget, "Fork: request B")
    press(widget, "Append: request B")
    assert "copy on write" in widget.locator(".sentence").inner_text()
    press(widget, "Finish: request A")
    assert heads(widget, "kept") == ["2"]
    assert widget.evaluate("() => document.activeElement.textContent") == "Add a question"


def test_the_pool_fills_evicts_and_refuses_by_keyboard(widget):
    story = widget.get_by_role("button", name="Add a story")
    story.focus()
    for _ in range(4):
        widget.page.keyboard.press("Enter")
    assert len(heads(widget, "used")) == 12
    widget.page.keyboard.press("Enter")
    assert "No room" in widget.locator(".sentence").inner_text()
    press(widget, "Finish: request A")
    story.focus()
    widget.page.keyboard.press("Enter")
    assert "evicted" in widget.locator(".sentence").inner_text()
    for _ in range(40):  # more than all pages hold
        press(widget, "Append: request B")
    assert "No page is free" in widget.locator(".sentence").inner_text()
    assert widget.evaluate("box => box.scrollWidth <= box.clientWidth")
    press(widget, "Start again")
    assert len(heads(widget, "blank")) == 12


def test_a_request_lights_its_pages(widget):
    press(widget, "Add a question")
    press(widget, "Add a story")
    widget.get_by_role("button", name="Fork: request A").focus()
    assert [card.locator("b").inner_text() for card in widget.locator(".slots.lit").all()] == ["0", "1", "2"]


def test_a_page_lights_its_owners(widget):
    for label in ("Add a question", "Add a question", "Add a story"):
        press(widget, label)
    widget.locator(".slots").first.hover()
    assert widget.locator(".requests > li.lit strong").all_inner_texts() == ["A", "B"]
    widget.locator("figcaption").hover()
    assert widget.locator(".requests > li.lit").count() == 0


def test_the_legend_has_the_borders_of_the_pages(widget):
    """Of one owner, of two, of none that can be found, and blank."""
    press(widget, "Add a question")
    press(widget, "Add a question")
    press(widget, "Finish: request A")
    press(widget, "Add a question")
    border = """(element, pseudo) => {
      const { borderTopStyle, borderTopColor } = getComputedStyle(element, pseudo);
      return `${borderTopStyle} ${borderTopColor}`;
    }"""
    for kind in ("used", "shared", "kept", "blank"):
        card = widget.locator(f".slots.{kind}").first.evaluate(border, None)
        key = widget.locator(f".key-of.{kind}").evaluate(border, "::before")
        assert (kind, key) == (kind, card)
