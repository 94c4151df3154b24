"""The interactive page: one file, right numbers, and no text of a prompt that could end its script."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError
from tiny_llm_tools.profile import attention_page, block_pattern
from tiny_llm_tools.profile.attention_weights import LayerAttention, layer_attention
from tiny_llm_tools.profile.page import data as page_numbers
from tiny_llm_tools.profile.page import most_tokens

HEADS, LENGTH = 3, 21


class Elements(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def recorded(length: int = LENGTH, layers: int = 2) -> list[LayerAttention]:
    query = mx.random.normal((layers, HEADS, length, 8)) * 3
    key, value = mx.random.normal((2, layers, 1, length, 8))
    return [layer_attention(query[i], key[i], value[i]) for i in range(layers)]


def read(page: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Elements(page).scripts[0])
    for name in ("scores", "entropy", "states", "results", "lse"):
        data[name] = np.frombuffer(base64.b64decode(data[name]), "<f4")
    data["weights"] = np.frombuffer(base64.b64decode(data["weights"]), "<u2")
    return data


def make(layers: list[LayerAttention], **more: Any) -> str:
    length = layers[0].scores.shape[1]
    facts = {"model": "toy", "prompt": "some words"}
    return attention_page(layers, [f"t{i}" for i in range(length)], facts, **more)


def test_every_number_of_every_head_is_there() -> None:
    layers = recorded()
    data = read(make(layers, layer=1, head=2))
    assert (data["layers"], data["heads"], data["first"]) == (2, HEADS, {"layer": 1, "head": 2, "row": 20})
    pairs = LENGTH * (LENGTH + 1) // 2
    scores, weights = (data[name].reshape(2, HEADS, pairs) for name in ("scores", "weights"))
    step = data["step"]
    tiles = [row // step + 1 for row in range(LENGTH)]
    states = data["states"].reshape(2, HEADS, sum(tiles), 3 + data["outputs"])
    results = data["results"].reshape(2, HEADS, LENGTH, data["outputs"])
    for number, layer in enumerate(layers):
        for head in range(HEADS):
            at, state = 0, 0
            for row in range(LENGTH):
                exact = np.array(layer.scores[head, row, : row + 1], np.float64)
                weight = np.exp(exact - exact.max())
                weight /= weight.sum()
                found = slice(at, at + row + 1)
                np.testing.assert_array_equal(scores[number, head, found], exact)
                np.testing.assert_allclose(weights[number, head, found] / 65535, weight, atol=1e-5)
                bits = -(weight * np.log2(weight)).sum()
                assert data["entropy"].reshape(2, HEADS, LENGTH)[number, head, row] == pytest.approx(
                    bits, abs=1e-4
                )
                for tile in range(tiles[row]):
                    m, l, alpha, *output = states[number, head, state + tile]  # noqa: E741
                    seen = exact[: (tile + 1) * step]
                    before = exact[: tile * step]
                    assert m == np.float32(seen.max())
                    assert l == pytest.approx(np.exp(seen - seen.max()).sum(), rel=1e-5)
                    expected = np.exp(before.max() - seen.max()) if tile else 0
                    assert alpha == pytest.approx(expected, rel=1e-5)
                    value = np.array(layer.value[head, : len(seen), : len(output)], np.float64)
                    np.testing.assert_allclose(output, np.exp(seen - seen.max()) @ value, atol=1e-4)
                mean = weight @ np.array(layer.value[head, : row + 1, : data["outputs"]], np.float64)
                np.testing.assert_allclose(results[number, head, row], mean, atol=1e-4)
                lse = data["lse"].reshape(2, HEADS, LENGTH)[number, head, row]
                assert lse == pytest.approx(np.log(np.exp(exact).sum()), rel=1e-5)
                at, state = at + row + 1, state + tiles[row]
    assert data["mean_entropy"] == [
        [
            pytest.approx(data["entropy"].reshape(2, HEADS, LENGTH)[i, head].mean(), abs=1e-3)
            for head in range(HEADS)
        ]
        for i in range(2)
    ]


def test_the_patterns_are_those_of_the_tiles() -> None:
    data = read(make(recorded()))
    kinds = {each["kind"] for each in data["patterns"]}
    assert kinds == {"causal", "causal, window of 5", "no mask"}
    for each in data["patterns"]:
        options = {"window": 5} if "window" in each["kind"] else {}
        expected = block_pattern(LENGTH, each["block_size"], each["kind"] != "no mask", **options)
        assert each["rows"] == ["".join(map(str, row)) for row in expected.tiles]
        assert (each["computed"], each["total"]) == (expected.computed, expected.total)
        assert len(each["rows"]) <= page_numbers.MAX_BLOCKS


@pytest.mark.parametrize("length", [1, 2, 33, 300])
def test_a_prompt_of_any_length_has_a_page_with_few_steps(length: int) -> None:
    data = read(make(recorded(length, layers=1)))
    assert len(data["tokens"]) == length
    assert -(-length // data["step"]) <= page_numbers.MAX_STEPS
    assert data["patterns"]
    assert len(data["scores"]) == HEADS * length * (length + 1) // 2


def test_the_page_needs_no_other_file_and_no_network() -> None:
    page = make(recorded())
    elements = Elements(page)
    named = [
        value
        for _, attributes in elements.found
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert named == []
    assert {tag for tag, _ in elements.found} & {"link", "img", "iframe", "object", "embed", "base"} == set()
    code = page.replace(elements.scripts[0], "")
    for word in ("http", "url(", "@import", "fetch", "XMLHttpRequest", "import ", "WebSocket", "eval("):
        assert word not in code, word


def test_every_element_that_a_script_names_exists_once() -> None:
    page = make(recorded())
    elements = Elements(page)
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    named = set(re.findall(r"(?:element|getElementById)\(\"([\w-]+)\"\)", elements.scripts[1]))
    assert len(named) > 20
    assert named <= set(ids)
    labelled = {
        attributes["aria-labelledby"] for _, attributes in elements.found if "aria-labelledby" in attributes
    }
    assert labelled <= set(ids)


def test_everything_that_can_be_used_has_a_name_for_screen_readers() -> None:
    page = make(recorded())
    controls = re.findall(r"<(select|input|button)\b([^>]*)>(.*?)(?=<|$)", page.partition("<script")[0], re.S)
    assert len(controls) >= 14
    for tag, attributes, text in controls:
        inside_label = tag != "button" and re.search(
            r"<label[^>]*>[^<]+<" + tag + re.escape(attributes) + ">", page
        )
        assert inside_label or "aria-label=" in attributes or text.strip(), attributes


def test_the_text_of_a_prompt_cannot_end_the_script() -> None:
    dangerous = (
        "</script><script>alert(1)</script><!-- @STYLE@ @SCRIPT@ \u2028 \"quotes\" 'single' ünïcödé 🦊"
    )
    layers = recorded(2, layers=1)
    page = attention_page(layers, [dangerous, "\n"], {"model": "<b>", "prompt": dangerous})
    elements = Elements(page)
    assert len(elements.scripts) == 2
    data = json.loads(elements.scripts[0])
    assert data["tokens"] == [dangerous, "\n"]
    assert data["facts"] == {"model": "<b>", "prompt": dangerous}
    assert "<title>Attention of &lt;b&gt;</title>" in page
    assert "b" not in {tag for tag, _ in elements.found}


def test_the_size_of_a_page_is_known_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (1, 20, 90):
        layers = recorded(length)
        numbers = sum(
            len(value)
            for value in page_numbers.page_data(layers, [""] * length).values()
            if isinstance(value, str)
        )
        assert page_numbers.page_bytes(2, HEADS, length) == pytest.approx(numbers, rel=0.05, abs=100)
    assert most_tokens(1, 1) == page_numbers.MAX_TOKENS
    monkeypatch.setattr(page_numbers, "MAX_PAGE_BYTES", page_numbers.page_bytes(2, HEADS, 20))
    assert most_tokens(2, HEADS) == 20
    with pytest.raises(ArgumentError, match="attention_page: tokens: got 21, expected at most 20"):
        make(recorded())


def test_wrong_arguments_are_refused() -> None:
    layers = recorded()
    with pytest.raises(ArgumentError, match="attention_page: layers: got none, expected at least one"):
        attention_page([], [], {"model": "", "prompt": ""})
    with pytest.raises(ArgumentError, match="tokens: got 1 texts, expected 21, one for each token"):
        attention_page(layers, ["a"], {"model": "", "prompt": ""})
    for argument, count in (("layer", 2), ("head", HEADS)):
        with pytest.raises(ArgumentError, match=f"{argument}: got {count}, expected at most {count - 1}"):
            make(layers, **{argument: count})
