"""The server of the book: pages, the attention of a question, errors, and how it starts and ends."""

import http.client
import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import decoder
from tiny_llm import LLM

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
PROMPT = "What is 12 + 7?"
JSON = {"Content-Type": "application/json"}


def start(folder, *options):
    command = [sys.executable, ROOT / "tools/book.py", "serve", "--output", folder, "--no-open", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def port_of(process):
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise AssertionError(process.stderr.read())


@pytest.fixture(scope="module")
def port(built):
    """A running server of the built pages."""
    process = start(built, "--port", "0")
    yield port_of(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in process.stderr.read()


def ask(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    return response.status, response.read().decode()


def attention_of(port, prompt):
    status, text = ask(port, "POST", "/attention", json.dumps({"prompt": prompt}), JSON)
    return status, json.loads(text)


def tokens_of(llm, question):
    template = llm.tokenizer.apply_chat_template([{"role": "user", "content": question}])
    return llm.tokenizer.encode(template, add_special_tokens=False)


def test_the_weights_are_those_of_the_layers_in_float64(port):
    """Computed from the weights of the model alone, layer by layer."""
    status, answer = attention_of(port, PROMPT)
    assert status == 200
    llm = LLM("tiny", dtype="float32")
    ids = tokens_of(llm, PROMPT)
    assert answer["tokens"] == [llm.tokenizer.decode([token]) for token in ids]
    model, args = llm.model.mlx_model.model, llm.model.mlx_model.args
    x = decoder.dense(model.embed_tokens)[np.array([ids])]
    hidden = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    assert len(answer["weights"]) == len(model.layers)
    for layer, found in zip(model.layers, answer["weights"], strict=True):
        normed = decoder.normalise(x, layer.input_layernorm.weight, args.rms_norm_eps)
        query, key = (
            decoder.rotate(
                decoder.product(normed, projection).reshape(1, len(ids), heads, -1), 0, args.rope_theta
            )[0].swapaxes(0, 1)
            for projection, heads in (
                (layer.self_attn.q_proj, args.num_attention_heads),
                (layer.self_attn.k_proj, args.num_key_value_heads),
            )
        )
        key = np.repeat(key, len(query) // len(key), axis=0)
        scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]) + hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        assert len(found) == len(weights)
        for head, expected in zip(found, weights, strict=True):
            for i, row in enumerate(head):
                np.testing.assert_allclose(row, expected[i, : i + 1], atol=2e-4)
        x = decoder.block(x, layer, args)


def test_prompts_that_come_together_get_their_own_answers(port):
    prompts = ["Hello there.", "A red fox sleeps.", "One two three four."]
    with ThreadPoolExecutor() as pool:
        together = list(pool.map(lambda prompt: attention_of(port, prompt), prompts))
    assert [status for status, _ in together] == [200] * 3
    assert all(
        prompt in "".join(answer["tokens"]) for prompt, (_, answer) in zip(prompts, together, strict=True)
    )
    assert [attention_of(port, prompt) for prompt in prompts] == together


@pytest.mark.parametrize(
    ("method", "body", "headers", "status", "sentence"),
    [
        ("GET", None, {}, 405, "attention: method: got GET, expected POST"),
        ("POST", "{}", {}, 415, "attention: content type: got none, expected application/json"),
        (
            "POST",
            "prompt=x",
            {"Content-Type": "text/plain"},
            415,
            "got text/plain, expected application/json",
        ),
        ("POST", "{", JSON, 400, "attention: body: got no JSON, expected an object with a prompt"),
        ("POST", "[1]", JSON, 400, "expected an object with a prompt alone"),
        ("POST", '{"prompt": "a", "model": "b"}', JSON, 400, "got other fields, expected an object"),
        ("POST", '{"prompt": 3}', JSON, 400, "attention: prompt: got an int"),
        ("POST", '{"prompt": ""}', JSON, 400, "attention: prompt: got no question, expected"),
        (
            "POST",
            json.dumps({"prompt": "1" * 57}),
            JSON,
            400,
            "got 65 tokens, with those of the chat template",
        ),
        ("POST", b"\xff\xfe", JSON, 400, "got no JSON"),
        ("POST", json.dumps({"prompt": "x" * 20_000}), JSON, 413, "got more than 16384 bytes"),
    ],
)
def test_a_wrong_request_gets_a_sentence_and_the_next_one_an_answer(
    port, method, body, headers, status, sentence
):
    found, text = ask(port, method, "/attention", body, headers)
    assert found == status
    assert sentence in json.loads(text)["error"]
    assert attention_of(port, "1" * 56)[0] == 200


def test_another_name_of_this_machine_reaches_nothing(port):
    for path in ("/", "/attention"):
        assert ask(port, "GET", path, None, {"Host": "example.org"})[0] == 400


def test_files_are_served_and_others_are_not(port):
    assert ask(port, "GET", "/")[0] == 200
    assert ask(port, "GET", "/week1/day3.html")[0] == 200
    assert ask(port, "GET", "/_static/book.css")[0] == 200
    assert ask(port, "GET", "/nothing.html")[0] == 404
    assert ask(port, "GET", "/../conf.py")[0] == 404


def note_outside(problems, port, url):
    if not url.startswith((f"http://127.0.0.1:{port}/", "data:")):
        problems.append(url)


def test_a_reader_types_a_prompt(port, browser):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: note_outside(problems, port, request.url))
    page.goto(f"http://127.0.0.1:{port}/week1/day3.html")
    widget = page.locator("figure.mounted[data-widget=live_attention]")
    widget.get_by_label("Your question").fill(PROMPT)
    page.keyboard.press("Enter")
    status = widget.get_by_role("status")
    expected = attention_of(port, PROMPT)[1]["tokens"]
    status.get_by_text(f"{len(expected)} tokens.").wait_for()
    assert PROMPT in widget.locator(".looks").inner_text()
    widget.get_by_label("Your question").fill("1" * 57)
    widget.get_by_role("button", name="Show its attention").click()
    status.get_by_text("got 65 tokens, with those of the chat template, expected at most 64").wait_for()
    assert PROMPT in widget.locator(".looks").inner_text()
    assert problems == []
    page.close()


def test_a_busy_port_is_named(port, tmp_path):
    second = start(tmp_path, "--port", str(port))
    _, errors = second.communicate(timeout=30)
    assert second.returncode == 1
    assert f"book: --port: cannot listen at {port} (Address already in use)" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_it_while_a_page_is_open(built, browser):
    process = start(built, "--port", "0")
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{port_of(process)}/")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 0
    assert process.stderr.read() == ""
    page.close()
