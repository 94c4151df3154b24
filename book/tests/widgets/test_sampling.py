"""The sampling playground: its model against the real sampler, its record, its table and its controls."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tests.support.generation.sampling import probabilities as oracle
from tiny_llm.sampling.draw import draw, draw_at, probabilities
from tiny_llm.sampling.params import Sampling
from tiny_llm.sampling.processors import logits_processors

pytestmark = pytest.mark.browser

BOOK = Path(__file__).resolve().parents[2]
RECORDED = json.loads((BOOK / "widgets/sampling/recorded.json").read_text())
PAGE = "week1/day7"
NEUTRAL = {
    "repetition": 1,
    "presence": 0,
    "frequency": 0,
    "topK": 0,
    "topP": 1,
    "minP": 0,
    "temperature": 1,
}
SETTINGS = [
    {},
    {"temperature": 0},
    {"temperature": 0.3},
    {"temperature": 2},
    {"topK": 1},
    {"topK": 40},
    {"topK": 1000, "topP": 0.9},
    {"topP": 1e-7},
    {"topP": 0.1},
    {"topP": 0.5, "temperature": 1.5},
    {"topP": 0.99},
    {"minP": 0.05},
    {"minP": 1},
    {"topK": 20, "topP": 0.95, "minP": 0.02, "temperature": 0.7},
    {"repetition": 1.3},
    {"repetition": 2, "topP": 0.9},
    {"presence": 2, "frequency": 1},
    {"presence": -2, "frequency": -1, "minP": 0.1},
    {
        "repetition": 1.1,
        "presence": 1,
        "frequency": 0.5,
        "topK": 40,
        "topP": 0.9,
        "minP": 0.01,
        "temperature": 0.8,
    },
]
UNIFORMS = (0.0, 0.0131, 0.2173, 0.5003, 0.7319, 0.9705, 0.9991)


def sampling_of(parameters):
    return Sampling(
        temp=parameters["temperature"],
        top_p=parameters["topP"],
        top_k=parameters["topK"],
        min_p=parameters["minP"],
        repetition_penalty=parameters["repetition"],
        presence_penalty=parameters["presence"],
        frequency_penalty=parameters["frequency"],
    )


def case(number, parameters):
    """What the real sampler does with these logits and settings."""
    example = RECORDED["examples"][number]
    sampling = sampling_of(parameters)
    tokens = mx.array(example["prompt"] + example["answer"])
    logits = mx.array(example["logits"])[None]
    for processor in logits_processors(sampling, len(example["prompt"])):
        logits = processor(tokens, logits)
    if sampling.temp == 0:
        best = draw(logits, sampling).item()
        found, draws = [(best, 1.0)], [(uniform, best) for uniform in UNIFORMS]
    else:
        every = np.array(probabilities(logits, sampling))[0]
        found = [(int(token), float(every[token])) for token in np.flatnonzero(every)]
        draws = [(u, draw_at(logits, sampling, mx.array([u])).item()) for u in UNIFORMS]
    return {"example": number, "parameters": parameters, "probabilities": found, "draws": draws}


def test_the_model_is_the_sampler(run_model):
    cases = [
        case(number, NEUTRAL | given) for number in range(len(RECORDED["examples"])) for given in SETTINGS
    ]
    run_model("sampling", {"examples": RECORDED["examples"], "cases": cases})


def test_the_record_is_what_the_model_computes(load_tool):
    found = load_tool("book_records").sampling()
    assert found["tokens"] == RECORDED["tokens"]
    for new, old in zip(found["examples"], RECORDED["examples"], strict=True):
        assert {**new, "logits": 0} == {**old, "logits": 0}
        np.testing.assert_allclose(new["logits"], old["logits"], atol=0.01)


def test_the_table_without_scripts_is_that_of_the_record(open_page):
    page = open_page(PAGE, scripts=False)
    rows = page.locator("figure[data-widget=sampling] tbody tr").all()
    found = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
    logits = RECORDED["examples"][0]["logits"]
    columns = [oracle(logits), oracle(logits, temp=0.5), oracle(logits, top_p=0.5)]
    best = np.argsort(-columns[0], kind="stable")[: len(rows)]
    assert found == [
        [RECORDED["tokens"][token].strip(), *(f"{100 * column[token]:.1f} %" for column in columns)]
        for token in best
    ]
    assert len(rows) == 5


def test_a_filter_removes_rows_and_says_how_many_remain(open_widget):
    widget = open_widget(PAGE, "sampling")
    sentence = widget.locator(".sentence").first
    assert sentence.inner_text().startswith("All of 4096 tokens can be drawn.")
    top_k = widget.get_by_label("top-k")
    top_k.focus()
    widget.page.keyboard.press("End")
    assert sentence.inner_text().startswith("1 of 4096 tokens can be drawn (top-k removed 4095).")
    after = widget.locator("tbody tr td:nth-of-type(3)").all_inner_texts()
    assert after == ["100.0 %", *["top-k"] * 9, "0 %"]
    widget.get_by_role("button", name="Start again").click()
    assert sentence.inner_text().startswith("All of 4096 tokens")
    widget.get_by_label("temperature").focus()
    widget.page.keyboard.press("Home")
    assert sentence.inner_text().startswith("At temperature 0 the most probable token is taken")


def test_draws_add_up_and_a_seed_repeats_them(open_widget):
    widget = open_widget(PAGE, "sampling")

    def counts():
        return [int(text) for text in widget.locator("tbody tr td:nth-of-type(4)").all_inner_texts()]

    for _ in range(3):
        widget.get_by_role("button", name="Draw 100").click()
    first = counts()
    assert sum(first) == 300
    expected = 300 * oracle(RECORDED["examples"][0]["logits"]).max()
    assert abs(first[0] - expected) < 5 * expected**0.5
    widget.get_by_role("button", name="Start again").click()
    for _ in range(3):
        widget.get_by_role("button", name="Draw 100").click()
    assert counts() == first


def test_each_example_shows_its_text(open_widget):
    widget = open_widget(PAGE, "sampling")
    for example in RECORDED["examples"]:
        choice = widget.get_by_role("button", name=example["name"], exact=True)
        choice.click()
        assert choice.get_attribute("aria-pressed") == "true"
        assert widget.locator(".question").inner_text() == example["question"]
        answer = "".join(RECORDED["tokens"][token] for token in example["answer"])
        assert widget.locator(".answer").inner_text().strip() == answer.strip()
