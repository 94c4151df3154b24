"""The map of threads: its model against the Metal kernel as the harness runs it, and its controls."""

from typing import Any

import numpy as np
import pytest

from tests.metal.attention.arguments import MaskStrides, ReadableArguments, as_bytes
from tests.metal.attention.run import compiled, launch, readable_source

pytestmark = pytest.mark.browser

NAME, ROWS, LANES = "flash_attention_f32_e128", 32, 32
# What the kernel writes down while it runs: which thread computes a score and a column of the output, and
# what each lane has as maximum and sum. The harness reports a place that two threads write.
NOTES = (
    (
        "device float* lse [[buffer(kLseSlot)]],",
        "device float* lse [[buffer(kLseSlot)]], device int* scores [[buffer(20)]], "
        "device int* columns [[buffer(21)]], device float* maxima [[buffer(22)]], "
        "device float* sums [[buffer(23)]],",
    ),
    ("s = args.scale * dot;", "s = args.scale * dot; scores[int64_t(row) * S + j] = r * 32 + lane;"),
    ("o[r][e] += weight * value", "columns[at_row + e] = r * 32 + lane, o[r][e] += weight * value"),
    ("m = m_new;", "m = m_new; maxima[row * 32 + lane] = m; sums[row * 32 + lane] = l;"),
)


def noting_source() -> str:
    source = readable_source()
    for old, new in NOTES:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


def run_kernel(S: int, E: int) -> dict[str, Any]:
    """The notes of one threadgroup: 32 rows of queries, S keys, E columns."""
    numbers = np.random.default_rng(0)
    query, key, value = (numbers.standard_normal((count, E)).astype(np.float32) for count in (ROWS, S, S))
    arguments = ReadableArguments(MaskStrides(), ROWS, S, E, 1, 1, E**-0.5, False, 0)
    notes = {
        "scores": np.full((ROWS, S), -1, np.int32),
        "columns": np.full((ROWS, E), -1, np.int32),
        "maxima": np.full((ROWS, LANES), np.nan, np.float32),
        "sums": np.full((ROWS, LANES), np.nan, np.float32),
    }
    found = launch("readable_attention", 1, ROWS)
    outputs, reports = compiled(noting_source(), NAME)(
        found.threadgroups,
        found.threads,
        {
            "query": query,
            "key": key,
            "value": value,
            "mask": np.zeros(1, np.float32),
            "args": as_bytes(arguments),
            "output": np.full((ROWS, E), np.nan, np.float32),
            "lse": np.full(ROWS, np.nan, np.float32),
            **notes,
        },
    )
    assert reports == []
    scores = query.astype(np.float64) @ key.T.astype(np.float64) * E**-0.5
    return {name: outputs[name] for name in notes} | {"S": S, "E": E, "expected": scores}


@pytest.mark.parametrize(("S", "E"), [(70, 128), (70, 16), (33, 80)])
def test_the_model_has_the_threads_of_the_kernel(run_model, S, E):
    found = run_kernel(S, E)
    used = compiled(noting_source(), NAME).threadgroup_bytes
    record = {"S": S, "E": E, "scores": found["scores"].tolist(), "columns": found["columns"].tolist()}
    run_model("thread_map", record | {"bytes": used})


def test_every_lane_of_a_row_has_its_maximum_and_its_sum():
    found = run_kernel(70, 64)
    maxima = found["expected"].max(axis=1, keepdims=True)
    sums = np.exp(found["expected"] - maxima).sum(axis=1, keepdims=True)
    for notes, wanted in ((found["maxima"], maxima), (found["sums"], sums)):
        assert (notes == notes[:, :1]).all()
        np.testing.assert_allclose(notes[:, :1], wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture
def threads(open_widget):
    return open_widget("week2/day5", "thread_map")


def sentence(threads) -> str:
    return threads.locator(".sentence").inner_text()


def point(threads, panel: int, row: int, x: int, columns: int) -> None:
    threads.locator("svg").nth(panel).scroll_into_view_if_needed()
    box = threads.locator("svg").nth(panel).bounding_box()
    across, down = ((16 + 320 * share) / 336 for share in ((x + 0.5) / columns, (row + 0.5) / 32))
    threads.page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])


def test_pointing_at_a_thread_shows_its_element_and_the_other_way_round(threads):
    point(threads, 0, 20, 3, 32)
    assert sentence(threads).startswith("Lane 3 of SIMD group 20 computes the score of row 20 and key 35:")
    threads.get_by_role("button", name="output").click()
    point(threads, 1, 31, 127, 128)
    assert sentence(threads).startswith(
        "Lane 31 of SIMD group 31 computes columns 31, 63, 95 and 127 of row 31, here O[31, 127]."
    )
    assert threads.locator("rect.column").count() == 4
    threads.get_by_role("button", name="maximum and sum").click()
    point(threads, 1, 0, 1, 2)
    assert sentence(threads).startswith("All 32 lanes of SIMD group 0 have the same m and l")


def test_arrow_keys_choose_threads_and_elements_and_stop_at_the_edges(threads):
    threads.locator("svg").first.focus()
    for _ in range(40):
        threads.page.keyboard.press("ArrowUp")
    threads.page.keyboard.press("ArrowRight")
    assert sentence(threads).startswith("Lane 8 of SIMD group 0 computes the score of row 0 and key 40:")
    threads.get_by_role("button", name="output").click()
    threads.locator("svg").nth(1).focus()
    for _ in range(130):
        threads.page.keyboard.press("ArrowRight")
    assert "here O[0, 127]" in sentence(threads)


def test_lanes_without_a_key_or_a_column_and_heads_that_do_not_fit(threads):
    threads.get_by_label("tile of keys").focus()
    threads.page.keyboard.press("End")
    assert "has no key in this tile, which ends at key 69" in sentence(threads)
    assert threads.locator("rect.score").count() == 0
    threads.get_by_role("button", name="output").click()
    assert "each of the 6 keys" in sentence(threads)
    size = threads.get_by_label("head size E")
    size.focus()
    threads.page.keyboard.press("Home")
    point(threads, 0, 4, 20, 32)
    assert sentence(threads).startswith("Lane 20 of SIMD group 4 has no column of 16.")
    size.focus()
    threads.page.keyboard.press("End")
    assert sentence(threads).startswith("The kernel refuses heads of 256 columns")
    assert threads.locator(".room").inner_text().endswith("a threadgroup has 32768. 16 rows would fit.")
    assert threads.evaluate("box => box.scrollWidth <= box.clientWidth")
