"""Files: conversations to one and from one, and texts that are attached to a question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer
from .conftest import Open

pytestmark = pytest.mark.browser


def export(page: ChatPage, folder: Path) -> Path:
    with page.tab.expect_download() as download:
        page.tab.get_by_role("button", name="Export").click()
    assert download.value.suggested_filename.startswith("tiny-llm-conversations-")
    path = folder / "exported.json"
    download.value.save_as(path)
    return path


def test_conversations_go_to_another_browser(
    page: ChatPage, new_page: Open, served: RunningServer, tmp_path: Path
) -> None:
    page.ask("One")
    page.tab.get_by_role("button", name="Answer again").click()
    page.answer()
    page.tab.locator("#conversations .new-conversation").click()
    page.ask("Two")
    path = export(page, tmp_path)
    other = new_page(served).open()
    assert other.tab.get_by_role("button", name="Export").is_disabled()
    other.ask("Mine")
    other.tab.set_input_files("#import-file", path)
    other.tab.get_by_text("2 conversations imported.").wait_for()
    assert sorted(other.titles) == ["Mine", "One", "Two"]
    other.open()
    other.tab.get_by_role("button", name="One", exact=True).click()
    assert other.texts == ["One", "The answer is forty-two."]
    assert other.last(".count") == "2 of 2"


def test_a_file_that_is_read_again_adds_nothing_and_takes_nothing_away(
    page: ChatPage, tmp_path: Path
) -> None:
    page.ask("One")
    path = export(page, tmp_path)
    page.ask("And then?")
    page.tab.set_input_files("#import-file", path)
    page.tab.get_by_text("1 conversation imported.").wait_for()
    assert page.titles == ["One"]
    assert len(page.texts) == len(page.stored[0]["turns"]) == 4
    page.tab.locator("#conversation-list li").hover()
    page.tab.get_by_role("button", name="Delete One").click()
    page.tab.set_input_files("#import-file", path)
    page.wait("document.querySelectorAll('#conversation-list .title').length === 1")
    assert len(page.stored[0]["turns"]) == 2


def test_a_file_of_something_else_is_refused(page: ChatPage, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps([{"id": "x"}]))
    page.tab.set_input_files("#import-file", wrong)
    page.tab.get_by_text("“wrong.json” has no conversations of this page.").wait_for()
    wrong.write_text(json.dumps({"format": "tiny-llm conversations", "conversations": [{"id": "x"}]}))
    page.tab.set_input_files("#import-file", wrong)
    page.tab.get_by_text("0 conversations imported. 1 cannot be read.").wait_for()
    assert page.stored == []


def test_text_files_become_part_of_the_question(page: ChatPage, engine: FakeEngine, tmp_path: Path) -> None:
    code, picture, long = (tmp_path / name for name in ("a b.py", "c.png", "d.txt"))
    code.write_text("x = 1\n")
    picture.write_bytes(b"\x89PNG\xff\x00")
    long.write_text("a" * 300_000)
    page.tab.fill("#question", "What is this?")
    page.tab.set_input_files("#attached", [code, picture, long])
    page.tab.get_by_text("“c.png” is not a text in UTF-8.").wait_for()
    page.tab.get_by_text("“d.txt” has 293 kB; the page attaches at most 256.").wait_for()
    page.tab.press("#question", "Enter")
    page.answer()
    assert page.tab.locator(".bubble .code pre").inner_text() == "x = 1"
    sent = engine.tokenizer.decode(engine.requests[-1].prompt_ids)
    assert "What is this?\n\nFile `a b.py`:\n\n```py\nx = 1\n```" in sent
