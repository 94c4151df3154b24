"""Questions and answers: streaming, stop, another answer, edit, settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiny_llm.engine import Engine

from ...support.serving.chat_models import THINKING, tokenizer_with
from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import running, wait_until
from .conftest import OTHER_NAME, Open, prompt

pytestmark = pytest.mark.browser
LONG = "word " * 400


def test_the_built_in_model_answers_with_its_speed_and_the_share_of_the_cache(new_page: Open) -> None:
    with Engine("tiny") as engine, running({"tiny": engine}) as server:
        page = new_page(server).open()
        page.tab.click("#show-settings")
        page.tab.fill("#setting-temperature", "0")
        assert "attention" in page.ask("What is FlashAttention?").lower()
        assert page.ask("What is 17 + 25?") == "17 + 25 = 42."
        page.ask("Tell me a short story about a fox.")
        stats = page.last(".stats")
        assert "tokens/s" in stats
        share = int(stats.partition(" % of the prompt")[0].rpartition(" ")[2])
        assert 0 < share <= 100
        assert page.tab.locator(".stats").count() == 3
        assert page.titles == ["What is FlashAttention?"]


def test_an_answer_shows_while_it_comes(page: ChatPage, engine: FakeEngine) -> None:
    engine.script, engine.delay = LONG, 0.005
    page.begin("Talk")
    answer = "document.querySelector('.answer[aria-busy=true] .markdown')?.innerText.length"
    page.wait(f"{answer} > 20")
    assert page.tab.locator(".answer footer").is_hidden()
    page.wait(f"{answer} > 200")
    assert page.answer() == LONG.strip()
    # The counts come in an event of their own, after the last one with text.
    page.wait("document.querySelector('.turn:last-child .stats').innerText.includes('tokens · ')")


@pytest.mark.parametrize("how", ["Escape", "button"])
def test_an_answer_can_be_stopped(page: ChatPage, engine: FakeEngine, how: str) -> None:
    engine.script, engine.delay = LONG, 0.02
    page.begin("Talk")
    page.wait("document.querySelector('.answer .markdown').innerText.length > 20")
    if how == "button":
        page.tab.get_by_role("button", name="Stop (Esc)").click()
    else:
        page.tab.keyboard.press("Escape")
    assert page.answer().startswith("word word")
    assert len(page.answer()) < len(LONG) / 2
    assert page.last(".stats").endswith("stopped")
    wait_until(lambda: engine.handles[-1].cancelled)
    engine.delay = 0
    assert page.ask("Again") == LONG.strip(), "the next question is answered"


def test_versions_of_an_answer_stay_and_the_shown_one_is_sent(page: ChatPage, engine: FakeEngine) -> None:
    page.ask("One")
    for script in ("Second.", "Third."):
        engine.script = script
        page.tab.get_by_role("button", name="Answer again").click()
        page.wait(f"document.querySelector('.turn:last-child .markdown').innerText === '{script}'")
        page.answer()
    before = page.tab.get_by_role("button", name="Version before")
    before.click()
    assert page.texts == ["One", "Second."]
    assert page.last(".count") == "2 of 3"
    page.tab.keyboard.press("Enter")
    assert page.texts == ["One", "The answer is forty-two."], "the focus stays at the arrow"
    assert before.is_disabled()
    page.tab.keyboard.press("Enter")
    assert page.texts == ["One", "Second."], "and goes to the other one at the end"
    page.open()
    assert page.texts == ["One", "Second."]
    page.ask("Two")
    assert "Second." in prompt(engine)
    assert "Third." not in prompt(engine)


def test_another_answer_replaces_the_last(page: ChatPage, engine: FakeEngine) -> None:
    page.ask("One")
    page.ask("Two")
    engine.script = "Another one."
    page.tab.get_by_role("button", name="Answer again").click()
    page.wait("document.querySelector('.turn:last-child .markdown').innerText === 'Another one.'")
    assert page.texts == ["One", "The answer is forty-two.", "Two", "Another one."]
    assert engine.requests[-1].prompt_ids == engine.requests[-2].prompt_ids


def test_an_answer_that_reached_the_maximum_length_is_continued(page: ChatPage, engine: FakeEngine) -> None:
    page.tab.click("#show-settings")
    page.tab.fill("#setting-max_tokens", "3")
    engine.script = "one two three four five six seven"
    cut = page.ask("Count")
    tokens = int(page.last(".stats").split()[0])
    assert page.last(".stats").endswith("reached the maximum length")
    page.tab.fill("#setting-max_tokens", "")
    engine.script = ", and the rest."
    page.tab.get_by_role("button", name="Continue").click()
    page.wait("document.querySelector('.turn:last-child .markdown').innerText.endsWith('rest.')")
    assert page.answer() == f"{cut}, and the rest."
    assert prompt(engine).endswith(cut), "the template has not ended the answer"
    assert int(page.last(".stats").split()[0]) > tokens
    assert not page.last(".stats").endswith("length")
    assert page.tab.get_by_role("button", name="Continue").is_hidden()
    page.open()
    assert page.texts == ["Count", f"{cut}, and the rest."]


def test_the_share_of_the_context_is_shown(page: ChatPage, engine: FakeEngine) -> None:
    assert page.tab.locator("#context").inner_text() == ""
    page.ask("One " * 50)
    usage = page.stored[0]["turns"][1]["usage"]
    share = round(100 * (usage["prompt"] + usage["generated"]) / engine.context)
    assert page.tab.locator("#context").inner_text() == f"{share} % of the context used"
    assert share > 0
    page.ask("Two " * 880)
    assert page.tab.locator("#context").evaluate("(one) => one.className") == "problem"
    page.tab.locator("#conversations .new-conversation").click()
    assert page.tab.locator("#context").inner_text() == ""


def test_an_edited_question_continues_from_there(page: ChatPage, engine: FakeEngine) -> None:
    for question in ("One", "Two", "Three"):
        page.ask(question)
    page.tab.locator(".question").nth(1).hover()
    page.tab.get_by_role("button", name="Edit this question").nth(1).click()
    area = page.tab.get_by_label("The question", exact=True)
    assert area.input_value() == "Two"
    area.press("Escape")
    assert len(page.texts) == 6, "cancelled"
    page.tab.get_by_role("button", name="Edit this question").nth(1).click()
    area.fill("Second")
    area.press("Enter")
    page.wait("document.querySelectorAll('.turn').length === 4")
    page.answer()
    assert page.texts == ["One", "The answer is forty-two.", "Second", "The answer is forty-two."]
    assert "Second" in prompt(engine)
    assert "Two" not in prompt(engine)


def test_settings_are_sent_and_wrong_ones_are_explained(page: ChatPage, engine: FakeEngine) -> None:
    page.tab.click("#show-settings")
    page.tab.fill("#system", "Always be brief.")
    for name, value in {"temperature": "0.3", "top_p": "0.9", "max_tokens": "5", "seed": "7"}.items():
        page.tab.fill(f"#setting-{name}", value)
    page.tab.fill("#setting-top_p", "3")
    field = page.tab.locator("#setting-top_p")
    assert field.get_attribute("aria-invalid") == "true"
    assert "at most 1" in page.tab.locator("#setting-top_p-hint").inner_text()
    page.ask("One")
    sampling = engine.requests[-1].sampling
    assert (sampling.temp, sampling.top_p, sampling.max_tokens, sampling.seed) == (0.3, 0.9, 5, 7)
    assert "Always be brief." in prompt(engine)
    page.open()
    page.tab.click("#show-settings")
    assert page.tab.input_value("#setting-temperature") == "0.3", "kept with the conversation"
    page.tab.click("#reset-settings")
    page.ask("Two")
    assert (engine.requests[-1].sampling.temp, engine.requests[-1].sampling.seed) == (1.0, None)


def test_the_model_is_chosen_from_those_of_the_server(new_page: Open) -> None:
    first, second = FakeEngine(script="first"), FakeEngine(script="second")
    with running({"a": first, "b": second}) as server:
        page = new_page(server).open()
        assert page.tab.locator("#model option").all_inner_texts() == ["a", "b"]
        assert page.ask("Who?") == "first"
        page.tab.select_option("#model", "b")
        assert page.ask("Who?") == "second"
        page.open()
        assert page.tab.input_value("#model") == "b"


def test_thoughts_are_folded(new_page: Open) -> None:
    script = "<think>First I <b>count</b>.</think>Four."
    with running(FakeEngine(script=script, tokenizer=tokenizer_with("{{ messages }}" + THINKING))) as server:
        page = new_page(server).open()
        page.tab.click("#show-settings")
        page.tab.check("#thinking")
        assert page.ask("2 + 2") == "Four."
        assert page.tab.locator(".thoughts").is_hidden()
        page.tab.get_by_text("Thoughts").click()
        assert page.last(".thoughts") == "First I <b>count</b>."


def test_the_page_follows_an_answer_until_the_reader_scrolls_up(page: ChatPage, engine: FakeEngine) -> None:
    engine.script, engine.delay = "A line.\n\n" * 150, 0.005
    page.begin("Talk")
    top = "document.querySelector('#scroller').scrollTop"
    page.wait(f"{top} > 200")
    page.tab.mouse.move(600, 300)
    page.tab.mouse.wheel(0, -150)
    page.tab.get_by_role("button", name="To the end").wait_for()
    place = page.evaluate(f"() => {top}")
    length = page.evaluate("() => document.querySelector('#scroller').scrollHeight")
    page.wait(f"document.querySelector('#scroller').scrollHeight > {length + 100}")
    assert page.evaluate(f"() => {top}") == place
    page.tab.get_by_role("button", name="To the end").click()
    page.answer()
    page.wait("(({scrollTop, scrollHeight, clientHeight}) => scrollHeight - clientHeight - scrollTop < 2)"
              "(document.querySelector('#scroller'))")  # fmt: skip


def test_a_long_answer_keeps_its_finished_paragraphs(page: ChatPage, engine: FakeEngine) -> None:
    """Only the open block is drawn anew: the first paragraph's element stays the same one."""
    engine.script, engine.delay = (
        "First.\n\n" + "- point\n" * 20 + "\n```py\n" + "x = 1\n" * 40 + "```\n\nEnd.",
        0.002,
    )
    page.begin("Talk")
    page.wait("document.querySelector('.markdown .code')?.innerText.includes('x = 1')")
    page.evaluate("() => { window.kept = [...document.querySelectorAll('.markdown > *')].slice(0, 3) }")
    page.answer()
    same = "() => window.kept.map((node, at) => document.querySelectorAll('.markdown > *')[at] === node)"
    assert page.evaluate(same) == [True, True, True]
    assert page.tab.locator(".markdown code").inner_text().count("x = 1") == 40


def test_the_page_works_over_plain_http_from_another_machine(new_page: Open) -> None:
    """There browsers have no clipboard and no random ids for scripts."""
    engine = FakeEngine(script="```\ncopy me\n```")
    with running(engine, allowed_hosts=(OTHER_NAME,)) as server:
        page = new_page(replace(server, address=(OTHER_NAME, server.address[1]))).open()
        assert page.evaluate("() => window.isSecureContext") is False
        page.ask("One")
        page.tab.get_by_role("button", name="Copy the code").click()
        page.tab.get_by_text("Copied").first.wait_for()
        page.tab.focus("#question")
        page.tab.keyboard.press("Control+V")
        assert page.tab.input_value("#question") == "copy me"
        page.open()
        assert page.titles == ["One"]
