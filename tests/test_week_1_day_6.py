"""Week 1, day 6: text from a model, one token at a time, reading everything again at each step."""

import mlx.core as mx
import pytest

from .support.generation.byte_text import END, ByteDetokenizer, ByteTokenizer, LookAheadDetokenizer, as_text
from .support.generation.fake_models import FullContextFake
from .support.generation.rules import greedy, random_rule, scripted
from .support.refusal import refused
from .tiny_llm_base import simple_generate

LLAMA = "Grüße, 🦙! "


def test_task_1_simple_generate_takes_the_best_token_until_the_end(capsys):
    """It prints the answer alone, and returns it."""
    rule = random_rule(1)
    answer = greedy(rule, "Hello")
    model = FullContextFake(rule, context=len("Hello") + len(answer) + 9)  # where an answer without end ends
    want = as_text(answer)
    assert simple_generate(model, ByteTokenizer(), "Hello", None) == want
    assert capsys.readouterr().out == want


def test_task_1_simple_generate_reads_the_whole_context_each_time(capsys):
    """One row of all tokens, one longer at each step."""
    model = FullContextFake(scripted({"abc": list(b"xyz")}))
    assert simple_generate(model, ByteTokenizer(), "abc", None) == "xyz"
    assert model.calls == [(1, 3), (1, 4), (1, 5), (1, 6)]


def test_task_1_simple_generate_ends_where_the_context_does(capsys):
    """No position beyond the context is computed."""
    model = FullContextFake(scripted({"hello": list(b"abcdefgh")}), context=8)
    assert simple_generate(model, ByteTokenizer(), "hello", None) == "abc"
    assert max(length for _, length in model.calls) <= 8


@pytest.mark.parametrize("detokenizer", [ByteDetokenizer, LookAheadDetokenizer])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_task_1_simple_generate_prints_whole_characters(capsys, monkeypatch, detokenizer, shared):
    """A token that ends inside a character waits for the rest; a used detokenizer starts afresh."""
    tokenizer = ByteTokenizer(detokenizer, shared=shared)
    tokenizer.detokenizer.add_token(ord("?"))
    model = FullContextFake(scripted({"hi": list(LLAMA.encode())}))
    pieces = []
    monkeypatch.setattr("builtins.print", lambda text, **_: pieces.append(text))
    assert simple_generate(model, tokenizer, "hi", None) == "".join(pieces) == LLAMA
    assert pieces == list(LLAMA)


def test_task_1_simple_generate_gives_the_sampler_log_probabilities(capsys):
    """One row [1, V] of float32 that is normalised; the sampler's id is the next token."""
    rows = []

    def second_best(logprobs):
        rows.append(logprobs)
        return mx.argsort(logprobs, axis=-1)[:, -2]

    rule = random_rule(2)
    model = FullContextFake(lambda context: rule(context).astype("float16"), context=9)
    text = simple_generate(model, ByteTokenizer(), "Hello", second_best)
    context = list(b"Hello")
    for _ in range(4):
        context.append(int(rule(tuple(context)).astype("float16").argsort()[-2]))
    assert text == as_text(context[5:])
    assert {(row.shape, row.dtype) for row in rows} == {((1, 258), mx.float32)}
    assert all(abs(mx.exp(row).sum().item() - 1) < 1e-5 for row in rows)


def test_task_1_simple_generate_ends_at_once_if_the_model_does(capsys):
    """An end token is no text."""
    assert simple_generate(FullContextFake(scripted({"hi": []})), ByteTokenizer(), "hi", None) == ""
    assert capsys.readouterr().out == ""


def test_task_1_simple_generate_stops_at_any_end_token(capsys):
    """Chat models have one for the turn and one for the text."""
    tokenizer = ByteTokenizer()
    tokenizer.eos_token_ids = {END, ord("c")}
    assert simple_generate(FullContextFake(scripted({"hi": list(b"abcd")})), tokenizer, "hi", None) == "ab"


@pytest.mark.parametrize("prompt", ["", "x" * 8, "x" * 99], ids=len)
def test_task_1_simple_generate_refuses_a_prompt_without_an_answer(prompt):
    """No tokens, or as many as the context: before the model is called."""
    model = FullContextFake(random_rule(), context=8)
    with refused("prompt", function="simple_generate"):
        simple_generate(model, ByteTokenizer(), prompt, None)
    assert model.calls == []


def test_task_1_simple_generate_refuses_a_tokenizer_of_another_model():
    """MLX would look up an id beyond the vocabulary without a word."""
    model = FullContextFake(random_rule())
    model.vocab_size = 100
    with refused("prompt", function="simple_generate"):
        simple_generate(model, ByteTokenizer(), "zebra", None)
