"""Every page in Chromium, from its file: links, widths, colours, no scripts, no errors, accessible."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

pytestmark = pytest.mark.browser
BOOK = Path(__file__).resolve().parents[1]
PAGES = sorted(path.relative_to(BOOK).with_suffix("").as_posix() for path in BOOK.rglob("*.md"))
WITH_WIDGETS = [page for page in PAGES if "```{widget}" in (BOOK / f"{page}.md").read_text()]
every_page = pytest.mark.parametrize("name", PAGES)


@every_page
def test_links_lead_to_files(open_page, name):
    page = open_page(name)
    targets = page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
    local = {target.split("#")[0] for target in targets if target.startswith("file:")}
    assert local
    assert [target for target in local if not Path(target.removeprefix("file://")).exists()] == []


@every_page
def test_a_phone_shows_the_whole_width(open_page, name):
    page = open_page(name, width=375)
    assert page.evaluate("document.documentElement.scrollWidth") == 375


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_accessible(open_page, name, scheme):
    """All rules in light; in dark those about colours, which are all that differs."""
    page = open_page(name, scheme=scheme)
    of_colours = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
    rules = of_colours if scheme == "dark" else {}
    found = Axe().run(page, context="article", options={"preload": False, **rules}).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.parametrize("name", WITH_WIDGETS)
def test_without_scripts_each_widget_is_a_table(open_page, name):
    page = open_page(name, scripts=False)
    widgets = re.findall(r"```\{widget\}", (BOOK / f"{name}.md").read_text())
    assert page.locator("figure.widget table").count() == len(widgets)
    assert page.locator("figure.widget table").first.is_visible()


@pytest.mark.parametrize("name", WITH_WIDGETS)
@pytest.mark.parametrize("width", [375, 1300])
def test_controls_of_widgets_survive_their_extreme_values(open_page, name, width):
    """By touch and by keyboard; a widget never grows beyond its frame."""
    page = open_page(name, width=width, touch=True)
    for place in page.locator("figure.widget.mounted").all():
        for control in place.locator("input[type=range]").all():
            for key in ("End", "Home"):
                control.press(key)
                assert _fits(place)
        for control in place.locator("select").all():
            for value in control.locator("option").evaluate_all("options => options.map(each => each.value)"):
                control.select_option(value)
                assert _fits(place)
        for control in place.locator("input[type=checkbox], input[type=radio], button").all():
            if control.is_visible() and control.is_enabled():
                control.tap()
                assert _fits(place)


@pytest.mark.parametrize("name", WITH_WIDGETS)
def test_every_widget_mounts_and_can_be_printed(open_page, name):
    page = open_page(name)
    count = len(re.findall(r"```\{widget\}", (BOOK / f"{name}.md").read_text()))
    assert page.locator("figure.widget.mounted").count() == count
    page.emulate_media(media="print")
    assert page.locator("figure.widget.mounted .controls:visible").count() == 0
    assert page.locator("figure.widget.mounted figcaption:visible").count() == count


def _fits(place):
    """Whether the content of a widget is as wide as its frame; a part that scrolls by itself may be wider."""
    return place.evaluate("box => box.scrollWidth <= box.clientWidth + 1")


def test_search_finds_a_word_of_a_chapter(open_page):
    page = open_page("search")
    page.locator("input[name=q]").first.fill("rescaled")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results a")
    assert "day4" in page.locator("#search-results a").first.get_attribute("href")
