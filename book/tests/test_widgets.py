"""The widgets in the page: mouse, keyboard, golden numbers, extreme values."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def page(open_page):
    return open_page("week2/day4")


def widget(page, name):
    found = page.locator(f"figure[data-widget={name}]")
    found.wait_for()
    return found


def rows(stepper):
    return dict(row.locator("th, td").all_inner_texts() for row in stepper.locator("tr").all())


def test_the_stepper_shows_the_golden_numbers(page):
    stepper = widget(page, "online_softmax")
    shown = []
    for _ in range(4):
        stepper.get_by_role("button", name="Next").click()
        state = rows(stepper)
        shown.append((state["m, the largest score"], state["l, the sum of exp(s − m)"]))
    assert shown == [
        ("0.375", "5.65141"),
        ("0.992188", "6.62615"),
        ("0.992188", "9.76465"),
        ("1.32031", "9.91144"),
    ]
    stepper.get_by_role("button", name="Next").click()
    assert rows(stepper)["O = O′ / l"].startswith("−0.08987  −0.1172  0.03236  0.1982")
    assert rows(stepper)["LSE = m + log l"] == "3.614"
    assert stepper.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"


def test_the_stepper_returns_to_the_same_states_by_keyboard(page):
    stepper = widget(page, "online_softmax")
    stepper.get_by_role("button", name="Next").focus()
    seen = [stepper.locator("table").inner_text()]
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.append(stepper.locator("table").inner_text())
    assert len(set(seen)) == 4
    for state in reversed(seen[:-1]):
        page.keyboard.press("ArrowLeft")
        assert stepper.locator("table").inner_text() == state


def test_the_calculator_shows_the_bytes_of_8192_tokens_and_follows_its_sliders(page):
    calculator = widget(page, "traffic")
    values = calculator.locator(".bar-row > :last-child")
    assert values.all_inner_texts() == ["17.45 GB", "8.724 GB", "268.4 MB"]
    tokens = calculator.get_by_label("tokens T")
    tokens.focus()
    page.keyboard.press("Home")
    assert "smaller than" in calculator.locator(".sentence").inner_text()
    for label in ("tokens T", "heads h", "head size d"):  # the largest values
        calculator.get_by_label(label).focus()
        page.keyboard.press("End")
    assert "TB" in values.first.inner_text()
    assert calculator.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_the_map_counts_its_tiles(page):
    tiles = widget(page, "tile_map")
    sentence = tiles.locator(".sentence")
    assert sentence.inner_text() == "136 of 256 tiles are computed, 120 are skipped; 16 need the mask."
    tiles.get_by_label("causal").uncheck()
    assert sentence.inner_text() == "256 of 256 tiles are computed, 0 are skipped; 0 need the mask."
    tiles.get_by_label("causal").check()
    tiles.get_by_label("queries L").focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    assert tiles.locator("rect.hidden").count() == 0  # one tile of rows at the end sees all keys
    assert tiles.locator("rect").count() == 16
