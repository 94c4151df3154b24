"""Several conversations, kept in the browser: reload, rename, delete, other tabs, broken and full storage."""

from __future__ import annotations

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer, wait_until
from .conftest import Open

pytestmark = pytest.mark.browser
FULL = """const set = Storage.prototype.setItem;
Storage.prototype.setItem = function (name, text) {
  if (name.includes(".conversation.") && !window.room) throw new DOMException("full", "QuotaExceededError");
  return set.call(this, name, text);
};"""
# A tab that is told nothing about what others store, as one that the browser has put to sleep.
DEAF = """window.addEventListener("storage", (event) => event.stopImmediatePropagation(), true);"""
CLOSED = """for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
}"""


def begin_another(page: ChatPage) -> None:
    page.tab.locator("#conversations .new-conversation").click()


def test_conversations_survive_a_reload(page: ChatPage) -> None:
    page.ask("One")
    page.ask("And then?")
    begin_another(page)
    assert page.texts == []
    page.ask("Other")
    page.open()
    assert page.titles == ["Other", "One"]
    assert page.texts == ["Other", "The answer is forty-two."], "the one that was shown"
    page.tab.get_by_role("button", name="One", exact=True).click()
    assert page.texts == ["One", "The answer is forty-two.", "And then?", "The answer is forty-two."]
    assert "tokens/s" in page.last(".stats")


def test_a_new_tab_begins_a_new_conversation_and_has_the_others(
    page: ChatPage, served: RunningServer
) -> None:
    page.ask("One")
    other = ChatPage(page.context, served).open()
    assert (other.texts, other.titles) == ([], ["One"])
    other.ask("Two")
    page.wait("document.querySelectorAll('#conversation-list .title').length === 2")
    other.tab.locator("#conversation-list li", has_text="One").hover()
    other.tab.get_by_role("button", name="Delete One").click()
    page.wait("document.querySelectorAll('#conversation-list .title').length === 1")
    assert [conversation["title"] for conversation in page.stored] == ["Two"]
    assert other.problems == []


def open_one(page: ChatPage, served: RunningServer, script: str = "") -> ChatPage:
    """Another tab of the browser with the conversation "One"."""
    other = ChatPage(page.context, served)
    other.tab.add_init_script(script)
    other.open()
    other.tab.get_by_role("button", name="One", exact=True).click()
    return other


def test_a_conversation_that_another_tab_deletes_is_no_longer_shown(
    page: ChatPage, served: RunningServer
) -> None:
    page.ask("One")
    other = open_one(page, served)
    other.tab.locator("#conversation-list li").hover()
    other.tab.get_by_role("button", name="Delete One").click()
    page.wait("document.querySelectorAll('.turn').length === 0")
    assert page.titles == []
    page.ask("Two")
    other.tab.get_by_role("button", name="Undo").click()
    page.wait("document.querySelectorAll('#conversation-list .title').length === 2")
    assert page.texts == ["Two", "The answer is forty-two."]
    assert other.problems == []


def test_two_tabs_that_answer_in_one_conversation_lose_nothing(
    page: ChatPage, served: RunningServer, engine: FakeEngine
) -> None:
    """The first tab saves its answer while it grows, and the other one asks in between."""
    page.ask("One")
    other = open_one(page, served)
    engine.script, engine.delay = "slow " * 80, 0.03
    page.begin("Slow")
    page.wait("document.querySelectorAll('.answer')[1]?.innerText.includes('slow')")
    other.wait("document.querySelectorAll('.turn').length === 4")
    engine.script = "Quick."
    assert other.ask("Quick?") == "Quick."
    said = ["One", "The answer is forty-two.", "Slow", ("slow " * 80).strip(), "Quick?", "Quick."]
    for tab in (page, other):
        tab.wait("document.querySelectorAll('.answer')[1]?.innerText.includes('tokens/s')")
        wait_until(lambda tab=tab: tab.texts == said)
    page.tab.reload()
    page.tab.locator(".turn").first.wait_for()
    assert page.texts == said
    assert other.problems == []


def test_a_tab_that_was_told_nothing_reads_before_it_writes(page: ChatPage, served: RunningServer) -> None:
    page.ask("One")
    deaf = open_one(page, served, DEAF)
    page.ask("Two")
    page.tab.locator("#conversation-list li").hover()
    page.tab.get_by_role("button", name="Rename One").click()
    page.tab.get_by_label("Name of the conversation").fill("Mine")
    page.tab.keyboard.press("Enter")
    deaf.wait("Object.values(localStorage).some((text) => text.includes('Mine'))")  # browsers take a moment
    assert deaf.titles == ["One"]
    deaf.ask("Three")
    answer = "The answer is forty-two."
    said = ["One", answer, "Two", answer, "Three", answer]
    assert (deaf.texts, deaf.titles) == (said, ["Mine"])
    wait_until(lambda: page.texts == said)
    assert [turn["text"].replace("*", "") for turn in page.stored[0]["turns"]] == said
    assert deaf.problems == []


def test_a_question_that_another_tab_has_replaced_can_still_be_edited(
    page: ChatPage, served: RunningServer
) -> None:
    page.ask("One")
    deaf = open_one(page, served, DEAF)
    deaf.tab.get_by_role("button", name="Edit this question").click()
    area = deaf.tab.get_by_label("The question", exact=True)
    area.fill("Mine")
    page.tab.get_by_role("button", name="Edit this question").click()
    page.tab.get_by_label("The question", exact=True).fill("Yours")
    page.tab.keyboard.press("Enter")
    page.answer()
    area.press("Enter")
    answer = "The answer is forty-two."
    deaf.wait("document.querySelectorAll('.turn').length === 4")
    deaf.answer()
    assert deaf.texts == ["Yours", answer, "Mine", answer]
    assert deaf.problems == []


def test_an_answer_that_another_tab_replaces_stops(
    page: ChatPage, served: RunningServer, engine: FakeEngine
) -> None:
    page.ask("One")
    other = open_one(page, served)
    engine.script, engine.delay = "slow " * 300, 0.03
    page.begin("Slow")
    page.wait("document.querySelectorAll('.answer')[1]?.innerText.includes('slow')")
    other.wait("document.querySelectorAll('.turn').length === 4")
    engine.script = "Quick."
    other.tab.get_by_role("button", name="Answer again").last.click()
    assert other.answer() == "Quick."
    page.wait("document.querySelectorAll('.answer')[1].innerText.includes('Quick.')")
    assert page.answer() == "Quick."
    wait_until(lambda: engine.running == [])
    assert [turn["text"] for turn in page.stored[0]["turns"]][2:] == ["Slow", "Quick."]
    assert other.problems == []


def test_conversations_are_found_by_their_words(page: ChatPage) -> None:
    for question in ("About Lighthouses", "About ships"):
        begin_another(page)
        page.ask(question)
    search = page.tab.get_by_label("Search in the conversations")
    search.fill("FORTY light")
    assert page.titles == ["About Lighthouses"]
    search.fill("trains")
    page.tab.get_by_text("No conversation has these words.").wait_for()
    assert page.titles == []
    search.press("Escape")
    assert page.titles == ["About ships", "About Lighthouses"]


def test_names_can_be_changed(page: ChatPage) -> None:
    page.ask("One")
    page.tab.locator("#conversation-list li").hover()
    page.tab.get_by_role("button", name="Rename One").click()
    field = page.tab.get_by_label("Name of the conversation")
    field.fill("Not this")
    field.press("Escape")
    assert page.titles == ["One"]
    page.tab.locator("#conversation-list li").hover()
    page.tab.get_by_role("button", name="Rename One").click()
    field.fill("<b>Mine</b>")
    field.press("Enter")
    page.open()
    assert page.titles == ["<b>Mine</b>"]


def test_a_deleted_conversation_can_come_back(page: ChatPage) -> None:
    page.ask("One")
    page.tab.locator("#conversation-list li").hover()
    page.tab.get_by_role("button", name="Delete One").click()
    assert (page.titles, page.texts, page.stored) == ([], [], [])
    page.tab.get_by_role("button", name="Undo").click()
    assert page.titles == ["One"]
    assert len(page.stored) == 1
    page.tab.get_by_role("button", name="One", exact=True).click()
    page.tab.locator("#conversation-list li").hover()
    page.tab.get_by_role("button", name="Delete One").click()
    page.open()
    assert (page.titles, page.stored) == ([], [])


def test_an_answer_goes_on_while_another_conversation_is_shown(page: ChatPage, engine: FakeEngine) -> None:
    engine.script, engine.delay = "word " * 100, 0.02
    page.begin("Slow")
    page.wait("document.querySelector('.answer .markdown').innerText.length > 5")
    begin_another(page)
    engine.script, engine.delay = "Quick.", 0.0
    assert page.ask("Quick?") == "Quick."
    page.tab.get_by_role("button", name="Slow", exact=True).click()
    assert page.answer() == ("word " * 100).strip()
    assert page.texts[0] == "Slow"


def test_leaving_the_page_keeps_what_has_come(page: ChatPage, engine: FakeEngine) -> None:
    engine.script, engine.delay = "word " * 300, 0.02
    page.begin("Slow")
    page.wait("document.querySelector('.answer .markdown').innerText.length > 50")
    page.open()
    assert page.texts[0] == "Slow"
    assert len(page.texts[1]) >= 50
    assert page.last(".stats").endswith("interrupted when the page was left")
    page.problems = [problem for problem in page.problems if "ERR_" not in problem]  # of the cut stream


def test_broken_records_do_not_hide_the_others(page: ChatPage) -> None:
    page.ask("One")
    for name, text in {"a": "{", "b": '{"id":"b","turns":[{}]}', "c": "null"}.items():
        page.evaluate(
            "([name, text]) => localStorage.setItem(`tiny-llm.conversation.${name}`, text)", [name, text]
        )
    page.evaluate(
        "() => { localStorage['tiny-llm.defaults'] = '[5'; localStorage['tiny-llm.theme'] = 'pink' }"
    )
    page.open()
    assert page.titles == ["One"]
    page.tab.get_by_text("3 stored conversations cannot be read.").wait_for()
    page.tab.get_by_role("button", name="Delete", exact=True).click()
    assert [conversation["title"] for conversation in page.stored] == ["One"]
    assert page.ask("Two") == "The answer is forty-two."


def test_a_full_storage_is_said_and_the_chat_goes_on(new_page: Open, served: RunningServer) -> None:
    page = new_page(served)
    page.tab.add_init_script(FULL)
    page.open()
    assert page.ask("One") == "The answer is forty-two."
    assert page.tab.get_by_text("The browser has no room for this conversation").count() == 1
    assert (page.titles, page.stored) == (["One"], [])
    page.evaluate("() => { window.room = true }")
    page.ask("Two")
    assert len(page.stored[0]["turns"]) == 4


def test_a_browser_that_keeps_nothing_can_chat(new_page: Open, served: RunningServer) -> None:
    page = new_page(served)
    page.tab.add_init_script(CLOSED)
    page.open()
    assert page.ask("One") == "The answer is forty-two."
    page.tab.click("#theme")
