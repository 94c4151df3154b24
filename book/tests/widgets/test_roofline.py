"""The roofline explorer: its points against the records, its model against their shares, and its controls."""

import json
import re
from typing import Any

import pytest

from book.widgets.roofline import data as explorer

pytestmark = pytest.mark.browser

THREADS = 2
ITEM = {"f32": 4, "f16": 2, "bf16": 2}


def recorded(machine: str, point: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of a point, and tiny-llm's part in it."""
    record = json.loads((explorer.RESULTS / machine / f"{point['benchmark']}.json").read_text())
    wanted = point["row"], THREADS
    rows = [row for row in record["rows"] if (row["row"], row["threads"]) == wanted]
    (row,) = [row for row in rows if row["group"] != "avx2"]  # the same rows with AVX2 forced
    return row, next(each for each in row["contestants"] if each["name"] == "ours")


def moved(name: str) -> int | None:
    """Bytes of query, key, value and output of an attention row, from its name; None for other rows."""
    item = ITEM.get(name.split()[0], 0)
    if found := re.fullmatch(r"\w+ (\d+)/(\d+) N=(\d+) D=(\d+) .*", name):
        heads, kv_heads, N, D = map(int, found.groups())
        return item * N * D * (heads + kv_heads + kv_heads + heads)
    if found := re.fullmatch(r"\w+ (\d+)/(\d+) D=(\d+), (\d+) x (\d+) tokens", name):
        heads, kv_heads, D, count, N = map(int, found.groups())
        return item * count * N * D * (heads + kv_heads + kv_heads + heads)
    if found := re.fullmatch(r"\w+ (\d+)/(\d+) L=1 S=(\d+) D=(\d+)", name):  # keys and values only
        _, kv_heads, S, D = map(int, found.groups())
        return item * S * D * 2 * kv_heads
    return None


@pytest.fixture(scope="module")
def machines():
    return explorer.data()


def all_points(machines):
    return [
        (machine, operation, point)
        for machine, found in machines.items()
        for operation, points in found["operations"].items()
        for point in points
    ]


def test_every_point_is_a_row_of_a_record(machines):
    for machine, _, point in all_points(machines):
        row, ours = recorded(machine, point)
        assert point["flops"] == row["flops"]
        assert point["bytes"] == (moved(point["row"]) or row["bytes"])
        assert point["rate"] == pytest.approx(row["flops"] / ours["seconds"]["median"] / 1e9, rel=1e-12)


def test_every_machine_shows_what_it_has_measured(machines):
    folders = {folder.name for folder in explorer.RESULTS.iterdir() if folder.is_dir()}
    assert machines.keys() == folders
    for machine, found in machines.items():
        dense = json.loads((explorer.RESULTS / machine / "linear.json").read_text())["rows"]
        names = {row["row"] for row in dense if row["threads"] == THREADS}
        assert {point["row"] for point in found["operations"]["dense products"]} == names


def test_the_model_has_the_shares_of_the_records(run_model, machines):
    run_model(
        "roofline",
        [
            {"point": point, "share": recorded(machine, point)[1]["share_of_peak"]}
            for machine, _, point in all_points(machines)
        ],
    )


def test_the_table_without_scripts_has_the_shares_of_the_records(machines):
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in explorer.table()[2:]]
    shares = {
        (machine, operation, point["row"].replace("->", "to")): recorded(machine, point)[1]["share_of_peak"]
        for machine, operation, point in all_points(machines)
    }
    assert len(lines) == 2 * sum(len(found["operations"]) for found in machines.values())
    for machine, operation, row, *_, share in lines:
        assert share == f"{shares[machine, operation, row]:.0%}"


# Figures of the chapter: a machine, an operation, a row, and what the text says of it.
DENSE = "epyc-zen4", "dense products"
QUOTED = [
    (*DENSE, "f32 7b 1 x 3584 -> 18944", "{bandwidth:.0f} GB/s"),
    (*DENSE, "f32 7b 1 x 3584 -> 18944", "measured are {rate:.3g} and"),
    (*DENSE, "f32 7b 512 x 3584 -> 18944", "{peak:.0f} GFLOP/s"),
    (*DENSE, "f32 7b 512 x 3584 -> 18944", "and {rate:.0f}. Both"),
    (*DENSE, "f32 7b 512 x 3584 -> 18944", "- {share:.0f} % of the arithmetic peak"),
    (
        "epyc-zen5",
        "quantized products",
        "bf16 4 bit 0.5b 1 x 896 -> 4864",
        "- {share:.0f} % of the bandwidth",
    ),
    ("xeon-amx", "attention", "bf16 14/2 N=4096 D=64 causal", "- {share:.0f} % of the peak (`xeon-amx`"),
    (*DENSE, "bf16 7b 1 x 3584 -> 18944", "- {share:.0f} % (`epyc-zen4`"),
]


@pytest.mark.parametrize(("machine", "operation", "row", "quote"), QUOTED)
def test_the_chapter_quotes_the_records(machines, machine, operation, row, quote):
    (point,) = [point for point in machines[machine]["operations"][operation] if point["row"] == row]
    share = 100 * recorded(machine, point)[1]["share_of_peak"]
    text = " ".join((explorer.RESULTS.parents[1] / "book/machines/rooflines.md").read_text().split())
    assert quote.format(**point, share=share) in text


@pytest.fixture
def roofline(open_widget):
    return open_widget("machines/rooflines", "roofline")


def test_a_row_that_is_chosen_has_its_ceiling_and_its_share(roofline, machines):
    roofline.get_by_role("button", name="epyc-zen4").click()
    roofline.get_by_role("button", name="dense products").click()
    name = "f32 7b 512 x 3584 -> 3584"
    roofline.get_by_role("button", name=name, exact=True).click()
    (point,) = [p for p in machines["epyc-zen4"]["operations"]["dense products"] if p["row"] == name]
    share = recorded("epyc-zen4", point)[1]["share_of_peak"]
    text = roofline.locator(".sentence").inner_text()
    assert text.startswith(f"{name}: 13.2 billion operations over 66.06 MB are 199 per byte.")
    assert f"The limit is arithmetic, {point['peak']:.0f} GFLOP/s" in text
    assert f", {share:.0%}.".replace("%", " %") in text
    assert roofline.locator("tr.chosen").inner_text().startswith(name)


def test_arrow_keys_and_the_pointer_choose_rows(roofline):
    chart, sentence = roofline.locator("svg"), roofline.locator(".sentence")
    chart.focus()
    before = sentence.inner_text()
    roofline.page.keyboard.press("ArrowLeft")
    assert sentence.inner_text() == before  # the first row
    roofline.page.keyboard.press("ArrowRight")
    second = sentence.inner_text()
    assert second != before
    for _ in range(100):
        roofline.page.keyboard.press("ArrowRight")
    box, last = roofline.locator(".rows").bounding_box(), roofline.locator("tr.chosen").bounding_box()
    assert last["y"] + last["height"] <= box["y"] + box["height"]  # the list has scrolled
    chart.scroll_into_view_if_needed()
    mark = roofline.locator("circle.point").nth(1).bounding_box()
    roofline.page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    assert sentence.inner_text() == second


@pytest.mark.parametrize("width", [375, 1300])
def test_labels_stay_inside_and_apart(open_widget, machines, width):
    roofline = open_widget("machines/rooflines", "roofline", width=width)
    for machine, found in machines.items():
        roofline.get_by_role("button", name=machine, exact=True).click()
        for operation in found["operations"]:
            roofline.get_by_role("button", name=operation, exact=True).click()
            where = f"{machine}, {operation}"
            outside = """chart => {
              const { left, right, top, bottom } = chart.getBoundingClientRect();
              return [...chart.querySelectorAll("text, circle")].filter((each) => {
                const box = each.getBoundingClientRect();
                return box.left < left || box.right > right + 1 || box.top < top || box.bottom > bottom;
              }).map((each) => each.textContent);
            }"""
            overlapping = """chart => {
              const texts = [...chart.querySelectorAll("text.axis")];
              const boxes = texts.map((each) => each.getBoundingClientRect());
              return texts.filter((each, i) => boxes.some((box, j) => j < i &&
                box.left < boxes[i].right && boxes[i].left < box.right &&
                box.top < boxes[i].bottom && boxes[i].top < box.bottom)).map((each) => each.textContent);
            }"""
            chart = roofline.locator("svg")
            assert (where, chart.evaluate(outside)) == (where, [])
            assert (where, chart.evaluate(overlapping)) == (where, [])
            assert roofline.evaluate("box => box.scrollWidth <= box.clientWidth")
