"""The live panel: the numbers of /metrics, only while somebody looks, and with the key if that is needed."""

from __future__ import annotations

import time

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import running, wait_until
from .conftest import Open

pytestmark = pytest.mark.browser
READINGS = 3.0  # seconds, in which the panel reads at least once


def value(page: ChatPage, tile: str) -> str:
    text: str = page.tab.locator(f"[data-tile={tile}] .value").inner_text()
    return text


def count_readings(page: ChatPage) -> list[str]:
    """A list that grows with each reading."""
    readings: list[str] = []
    page.tab.on("request", lambda one: readings.append(one.url) if one.url.endswith("/metrics") else None)
    return readings


def test_the_panel_shows_what_the_server_does(page: ChatPage, engine: FakeEngine) -> None:
    readings = count_readings(page)
    page.ask("Before")
    assert readings == [], "nothing is read while the panel is closed"
    engine.script, engine.delay = "word " * 400, 0.02
    page.begin("Talk")
    page.tab.click("#show-live")
    page.wait("Number(document.querySelector('[data-tile=generated] .value').innerText) > 0")
    assert (value(page, "running"), value(page, "pages"), value(page, "finished")) == ("1", "10 %", "1")
    assert page.tab.locator("[data-tile=generated] .line").get_attribute("d").startswith("M")
    page.tab.locator("#send").click()
    page.wait("document.querySelector('[data-tile=running] .value').innerText === '0'")
    engine.script = "Short."
    page.ask("Once more")
    page.wait("document.querySelector('[data-tile=firstToken] .value').innerText.endsWith('s')")


def test_nothing_is_read_while_the_page_is_hidden(page: ChatPage) -> None:
    readings = count_readings(page)
    page.tab.click("#show-live")
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.wait("document.querySelector('[data-tile=running] .value').innerText === '0'")
    page.evaluate(hide, True)
    before = len(readings)
    page.tab.wait_for_timeout(READINGS * 1000)
    assert len(readings) == before
    page.evaluate(hide, False)
    page.wait("document.querySelector('[data-tile=generated] .value').innerText === '0'")
    assert len(readings) > before
    page.tab.locator("#live .close").click()


def test_a_locked_panel_asks_only_when_told_to(new_page: Open) -> None:
    with running(FakeEngine(), api_keys=("right",)) as server:
        page = new_page(server)
        page.tab.goto(server.url)
        page.tab.get_by_role("button", name="Cancel").click()
        page.tab.click("#show-live")
        page.tab.get_by_text("The numbers need the key of the server.").wait_for()
        readings = count_readings(page)
        start = time.monotonic()
        wait_until(lambda: page.tab.wait_for_timeout(500) or time.monotonic() - start > READINGS)
        assert readings == [], "a wrong key is not tried again and again"
        page.tab.get_by_role("button", name="Enter the key").click()
        page.tab.get_by_label("Key", exact=True).fill("right")
        page.tab.keyboard.press("Enter")
        page.wait("document.querySelector('[data-tile=running] .value').innerText === '0'")
        assert page.tab.locator("#live-message").is_hidden()
        page.expect_problems("401")


def test_open_metrics_need_no_key(new_page: Open) -> None:
    with running(FakeEngine(), api_keys=("right",), open_metrics=True) as server:
        page = new_page(server)
        page.tab.goto(server.url)
        page.tab.get_by_role("button", name="Cancel").click()
        page.tab.click("#show-live")
        page.wait("document.querySelector('[data-tile=running] .value').innerText === '0'")
        page.expect_problems("401")


def test_a_lost_server_is_said_and_found_again(page: ChatPage) -> None:
    page.tab.click("#show-live")
    page.wait("document.querySelector('[data-tile=running] .value').innerText === '0'")
    page.context.set_offline(True)
    page.tab.locator("#live-message", has_text="cannot be reached").wait_for()
    page.context.set_offline(False)
    page.tab.locator("#live-message").wait_for(state="hidden")
    page.expect_problems("ERR_INTERNET_DISCONNECTED")
