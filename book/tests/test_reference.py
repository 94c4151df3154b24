"""The reference names what the program has: routes and fields, kernels, models and measured rows."""

import json
import re

import msgspec
import pytest

import tiny_llm_ext
from benches.report.pages import PICTURES, RESULTS, TABLES, TITLES
from benches.report.tables import tally
from tiny_llm.models.names import SHORTCUTS
from tiny_llm.server.api.anthropic_reader import AnthropicFields
from tiny_llm.server.api.fields import ChatFields, CompletionFields
from tiny_llm.server.api.responses_reader import ResponseFields

pytestmark = pytest.mark.browser
FIELDS = {
    "/v1/chat/completions": ChatFields,
    "/v1/completions": CompletionFields,
    "/v1/responses": ResponseFields,
    "/v1/messages": AnthropicFields,
}
MACHINES = sorted(path.name for path in RESULTS.iterdir() if path.is_dir())


def cells(table):
    rows = table.locator("tbody tr").all()
    return [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]


@pytest.mark.parametrize("path", FIELDS)
def test_a_route_has_all_fields_of_its_requests(open_page, path):
    page = open_page("reference/server")
    route = page.locator("section", has=page.locator("h3", has_text=re.compile(f"POST {path}(?!/)"))).last
    found = cells(route.locator("table"))
    fields = msgspec.structs.fields(FIELDS[path])
    assert [row[0] for row in found] == [field.encode_name for field in fields]
    assert [row[0] for row in found if row[2] == "required"] == [
        field.encode_name for field in fields if field.required
    ]


def test_a_field_has_its_range_and_links_to_its_schema(open_page):
    page = open_page("reference/server")
    row = page.locator("tr", has=page.locator("code", has_text=re.compile("^temperature$"))).first
    assert row.locator("td").nth(1).inner_text() == "number (≥ 0, ≤ 2)"
    targets = page.eval_on_selector_all("article a[href^='#']", "links => links.map(link => link.hash)")
    assert len(targets) > 20
    assert [target for target in targets if page.locator(target).count() != 1] == []


def test_the_kernels_are_the_rows_of_the_support_list(open_page):
    found = cells(open_page("reference/support").locator("table").first)
    expected = {
        (row["backend"], row["pass"], row["dtype"]): "head sizes {} to {}".format(*row["head_size"])
        for row in tiny_llm_ext.support()
    }
    shown = {
        (backend, kernel, dtype): text
        for backend, kernel, *texts in found
        for dtype, text in zip(("f32", "f16", "bf16"), texts, strict=True)
        if text != "–"
    }
    assert shown == expected


def test_the_models_are_those_with_a_shortcut(open_page):
    found = cells(open_page("reference/support").locator("table").nth(1))
    assert {row[1]: row[2] for row in found} == SHORTCUTS


@pytest.mark.parametrize("machine", MACHINES)
def test_a_page_of_a_machine_has_all_its_records(open_page, machine):
    page = open_page(f"reference/benchmarks/{machine}")
    records = {path.stem: json.loads(path.read_text()) for path in (RESULTS / machine).glob("*.json")}
    titles = {TITLES.get(name, name) for name in records}
    headings = {text.removesuffix("¶") for text in page.locator("h2").all_text_contents()}
    assert headings == titles | {"Targets"}
    drawn = [record for record in records.values() if record["benchmark"] in PICTURES]
    assert page.locator(".chart svg").count() == len(drawn)
    text = " ".join(page.locator("article").inner_text().split())
    for record in records.values():
        assert " ".join(tally(record).split()) in text
        if record["benchmark"] not in {**TABLES, **PICTURES}:  # these show other names, or no row
            rows = {" ".join(row["row"].split()) for row in record["rows"]}
            assert [row for row in rows if row not in text] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_of_pictures_stand_out_from_the_page(open_page, scheme):
    page = open_page("reference/benchmarks/index", scheme=scheme)
    colours = page.evaluate(
        """() => {
            const text = getComputedStyle(document.querySelector(".chart text")).fill;
            return [text, getComputedStyle(document.body).backgroundColor];
        }"""
    )
    light = [sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3 for colour in colours]
    assert abs(light[0] - light[1]) > 150
