"""The attention of the built-in model: its record, table and controls; test_server.py has the live one."""

import json
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.browser

BOOK = Path(__file__).resolve().parents[2]
RECORDED = json.loads((BOOK / "widgets/live_attention/recorded.json").read_text())
PAGE = "week1/day3"
LABELS = {
    " Anna": "␣Anna",
    "\n": "⏎",
    "": "∅",
    "<|im_start|>": "<|im_start|>",
    "uncommonly long": "uncommonly␣…",
}


def row_of(row):
    weights = np.array(row)
    order = np.argsort(-weights, kind="stable")[:4]
    some = weights[weights > 0]
    return {
        "row": row,
        "largest": [int(key) for key in order if weights[key] >= 0.005],
        "bits": float(-(some * np.log2(some)).sum()),
    }


def test_the_model_reads_rows_as_numpy_does(run_model):
    rows = [row_of(row) for layer in RECORDED["weights"] for head in layer for row in head]
    areas = [{"length": n, "hidden": int(np.triu(np.ones((n, n)), 1).sum())} for n in (1, 2, 3, 17, 64)]
    run_model("live_attention", {"rows": rows, "areas": areas, "labels": LABELS})


def test_the_record_is_what_the_model_computes(load_tool):
    found = load_tool("book_records").attention()
    assert found["tokens"] == RECORDED["tokens"]
    for new, old in zip(found["weights"], RECORDED["weights"], strict=True):
        for head, recorded in zip(new, old, strict=True):
            for row, kept in zip(head, recorded, strict=True):
                np.testing.assert_allclose(row, kept, atol=2e-4)


def test_the_table_without_scripts_is_that_of_the_record(open_page):
    page = open_page(PAGE, scripts=False)
    rows = page.locator("figure[data-widget=live_attention] tbody tr").all()
    found = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
    tokens, last = RECORDED["tokens"], -1
    expected = []
    for layer, head in ((3, 2), (5, 0), (7, 0)):
        weights = np.array(RECORDED["weights"][layer][head][last])
        best = np.argsort(-weights, kind="stable")[:2]
        looks = ", ".join(f"{tokens[key].strip()} {100 * weights[key]:.0f} %" for key in best)
        expected.append([str(layer), str(head), looks])
    assert found == expected


def test_the_keyboard_moves_the_query_and_sliders_choose_the_head(open_widget):
    widget = open_widget(PAGE, "live_attention")
    sentence = widget.locator(".sentence")
    last = len(RECORDED["tokens"]) - 1
    assert sentence.inner_text().startswith(f"Token {last}, ")
    widget.locator(".matrix").focus()
    for key, query in (("Home", 0), ("ArrowUp", 0), ("ArrowDown", 1), ("End", last)):
        widget.page.keyboard.press(key)
        assert sentence.inner_text().startswith(f"Token {query}, ")
    widget.page.keyboard.press("Home")
    assert "It sees 1 of" in sentence.inner_text()
    assert sentence.inner_text().endswith("entropy 0.00 bits.")
    widget.page.keyboard.press("End")
    before = sentence.inner_text()
    widget.get_by_role("slider", name="head").focus()
    widget.page.keyboard.press("ArrowRight")
    assert sentence.inner_text() != before
    assert "head 3;" in widget.locator(".matrix").get_attribute("aria-label")


def test_the_mouse_chooses_a_row(open_widget):
    widget = open_widget(PAGE, "live_attention")
    drawing = widget.locator(".matrix svg")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    cell = widget.locator(".matrix rect.weight").first.bounding_box()
    widget.page.mouse.move(cell["x"] + cell["width"] / 2, cell["y"] + 2.5 * cell["height"])
    assert widget.locator(".sentence").inner_text().startswith("Token 2, ")
    widget.page.mouse.move(box["x"] + 5, box["y"] + 5)  # beside the matrix: the row stays
    assert widget.locator(".sentence").inner_text().startswith("Token 2, ")


def test_a_page_from_a_file_says_how_to_get_the_model(open_widget):
    widget = open_widget(PAGE, "live_attention")
    assert "pdm run book" in widget.locator(".note").inner_text()
    assert widget.locator("form").count() == 0
    rects = len(RECORDED["tokens"]) * (len(RECORDED["tokens"]) + 1) // 2
    assert widget.locator(".matrix rect.weight").count() == rects
