"""The map of heads: its model against grouped attention in Python, and its controls."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import scaled_dot_product_attention_grouped

pytestmark = pytest.mark.browser

HEADS = (2, 4, 6, 8, 12, 14, 16, 28, 32)
DIVISORS = [[n, [d for d in range(1, n + 1) if n % d == 0]] for n in HEADS]


def heads_read(query_heads: int, kv_heads: int) -> list[int]:
    """Which KV head each query head reads: the one key of each has the number of its head as value."""
    number = mx.arange(kv_heads).astype(mx.float32)[:, None, None]
    out = scaled_dot_product_attention_grouped(
        mx.ones((query_heads, 1, 1)), mx.ones((kv_heads, 1, 1)), number
    )
    return [int(read) for read in np.array(out).ravel()]


def oracle() -> dict[str, Any]:
    maps = []
    for query_heads, divisors in DIVISORS:
        for kv_heads in divisors:
            reads = heads_read(query_heads, kv_heads)
            dealt = np.resize(np.arange(kv_heads), query_heads).tolist()
            others = np.flatnonzero(np.array(reads) != dealt).tolist()
            call = {"queryHeads": query_heads, "kvHeads": kv_heads}
            maps.append({"call": call, "reads": reads, "dealt": dealt, "others": others})
    caches = [
        {"kvHeads": heads, "size": size, "bytes": np.zeros((2, heads, size), np.float16).nbytes}
        for heads in (1, 2, 14)
        for size in (64, 128)
    ]
    return {"maps": maps, "caches": caches, "divisors": DIVISORS}


def test_the_oracle_has_the_groups_of_the_book():
    assert heads_read(14, 2) == [0] * 7 + [1] * 7


def test_the_model_follows_the_oracle(run_model):
    run_model("head_map", oracle())


@pytest.fixture
def widget(open_widget):
    return open_widget("week1/day3", "head_map")


def sentence(widget) -> str:
    return widget.locator(".sentence").first.inner_text()


def test_every_head_says_what_it_reads(widget):
    slider = widget.get_by_label("query head h")
    for head in (0, 6, 7, 13):
        slider.fill(str(head))
        first = 7 * (head // 7)
        assert sentence(widget) == (
            f"Query head {head} reads KV head ⌊{head} / 7⌋ = {head // 7}, "
            f"like all heads from {first} to {first + 6}."
        )
    assert widget.locator(".amount").all_inner_texts() == ["3,584 B", "512 B, 1/7", "256 B, 1/14"]
    assert widget.locator("line").count() == 14
    slider.focus()
    widget.page.keyboard.press("ArrowLeft")
    assert sentence(widget).startswith("Query head 12 ")


@pytest.mark.parametrize("width", [1300, 375])
def test_the_pointer_chooses_a_head(open_widget, width):
    widget = open_widget("week1/day3", "head_map", width=width)
    box = widget.locator("svg.heads").bounding_box()
    widget.locator("svg.heads").hover(position={"x": box["width"] * 10.5 / 14, "y": 30})
    assert sentence(widget).startswith("Query head 10 reads KV head ⌊10 / 7⌋ = 1")
    assert widget.get_by_label("query head h").input_value() == "10"


def test_only_divisors_are_offered_and_extremes_hold(widget):
    kv_heads = widget.get_by_label("KV heads")
    kv_heads.fill(kv_heads.get_attribute("max"))
    assert sentence(widget) == "Query head 3 has KV head 3 to itself."
    widget.get_by_label("query heads").fill("8")  # 32 heads, of which 14 is no divisor
    assert kv_heads.get_attribute("aria-valuetext") == "8"
    assert sentence(widget) == "Query head 3 reads KV head ⌊3 / 4⌋ = 0, like all heads from 0 to 3."
    widget.get_by_label("query head h").fill("31")
    widget.get_by_label("query heads").fill("0")  # 2 heads
    assert sentence(widget) == "Query head 1 has KV head 1 to itself."
    kv_heads.fill("0")
    assert sentence(widget) == "Query head 1 reads KV head ⌊1 / 2⌋ = 0, like all heads from 0 to 1."


def test_the_wrong_map_counts_heads_that_read_keys_of_another_group(widget):
    widget.get_by_label("the wrong map").check()
    assert sentence(widget) == "Query head 3 reads KV head 3 mod 2 = 1, but its keys are those of KV head 0."
    assert widget.locator(".verdict").inner_text().startswith("6 of 14 query heads read the keys of another")
    assert widget.locator("line.foreign").count() == 6
    widget.get_by_label("KV heads").fill("0")
    assert widget.locator(".verdict").inner_text().startswith("Here both maps are the same")
    widget.get_by_label("the wrong map").uncheck()
    assert not widget.locator(".verdict").is_visible()
