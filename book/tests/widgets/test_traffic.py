"""The calculator of memory traffic: its model against bytes counted array by array, and its sliders."""

from typing import Any

import pytest

pytestmark = pytest.mark.browser


def oracle() -> list[dict[str, Any]]:
    """Bytes counted array by array: (times it moves) x (elements) x 2."""
    rows = []
    for tokens in (128, 256, 1024, 2048, 8192, 32768):
        for tile in (64, 128):
            operand, matrix = 2 * tokens * 32 * 128, 2 * 32 * tokens * tokens
            readings = -(-tokens // tile)
            rows.append(
                {
                    "call": {"tokens": tokens, "heads": 32, "size": 128, "tile": tile},
                    "naive": 4 * operand + 2 * matrix + 2 * matrix,
                    "flash": 4 * operand,
                    "reread": 2 * operand + 2 * readings * operand,
                }
            )
    return rows


def test_the_model_counts_bytes(run_model):
    run_model("traffic", oracle())


def test_the_calculator_shows_the_bytes_of_8192_tokens_and_follows_its_sliders(open_widget):
    calculator = open_widget("week2/day4", "traffic")
    values = calculator.locator(".bar-row > :last-child")
    assert values.all_inner_texts() == ["17.45 GB", "8.724 GB", "268.4 MB"]
    tokens = calculator.get_by_label("tokens T")
    tokens.focus()
    calculator.page.keyboard.press("Home")
    assert "smaller than" in calculator.locator(".sentence").inner_text()
    for label in ("tokens T", "heads h", "head size d"):  # the largest values
        calculator.get_by_label(label).focus()
        calculator.page.keyboard.press("End")
    assert "TB" in values.first.inner_text()
    assert calculator.evaluate("box => box.scrollWidth <= box.clientWidth")
