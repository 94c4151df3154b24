"""What the reader sees of a question or an answer that fails, and can do about it."""

from __future__ import annotations

import pytest

from tiny_llm.errors import NumericError, QueueFull

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer
from .conftest import prompt

pytestmark = pytest.mark.browser


def test_a_full_queue_is_said_and_the_question_can_be_tried_again(page: ChatPage, engine: FakeEngine) -> None:
    engine.refusal = QueueFull(1)
    page.begin("One")
    page.tab.get_by_text("Too many requests are waiting.").wait_for()
    engine.refusal = None
    page.tab.get_by_role("button", name="Try again").click()
    assert page.answer() == "The answer is forty-two."
    assert page.texts == ["One", "The answer is forty-two."]
    page.expect_problems("429")


def test_a_failure_in_the_middle_keeps_what_has_come(page: ChatPage, engine: FakeEngine) -> None:
    engine.failure, engine.fail_after = NumericError(), 4
    page.begin("One")
    page.tab.get_by_role("button", name="Try again").wait_for()
    assert page.last(".markdown").startswith("The")
    assert page.last(".error").startswith("The server failed to answer. Its log has the reason under req_")


def test_a_conversation_beyond_the_context_is_explained(page: ChatPage, engine: FakeEngine) -> None:
    engine.context = 40
    page.begin("A question of many words " * 20)
    page.tab.get_by_text("do not fit into the model's context").wait_for()
    page.expect_problems("400")


def test_a_failed_question_is_not_sent_again_and_can_be_edited(page: ChatPage, engine: FakeEngine) -> None:
    engine.context = 60
    page.begin("Far too long " * 40)
    page.tab.get_by_text("Later questions are sent without this one.").wait_for()
    assert page.ask("Short?") == "The answer is forty-two."
    assert "Short?" in prompt(engine)
    assert "too long" not in prompt(engine)
    page.tab.get_by_role("button", name="Edit the question").click()
    area = page.tab.get_by_label("The question", exact=True)
    assert area.input_value().startswith("Far too long")
    area.fill("Now short")
    area.press("Enter")
    page.wait("document.querySelectorAll('.turn').length === 2")
    assert page.answer() == "The answer is forty-two."
    assert page.texts == ["Now short", "The answer is forty-two."]
    page.expect_problems("400")


def test_a_lost_server_is_said(page: ChatPage, served: RunningServer) -> None:
    page.context.set_offline(True)
    page.begin("One")
    page.tab.get_by_text("The server cannot be reached.").wait_for()
    page.context.set_offline(False)
    page.tab.get_by_role("button", name="Try again").click()
    assert page.answer() == "The answer is forty-two."
    page.expect_problems("ERR_INTERNET_DISCONNECTED")
