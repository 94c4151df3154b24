"""The state of an answer in its grammar: what may follow, steps back, copies; and grammars that fail."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import GrammarError, Sampling, UnsupportedError
from tiny_llm.sampling.grammar import (
    Grammar,
    GrammarState,
    apply_masks,
    compiler,
    start_grammar,
)
from tiny_llm.sampling.rows import RowSampler

from ...support.generation.byte_text import ByteTokenizer
from ...support.refusal import refused
from ...support.serving import chat_models
from .grammars import PATTERN, PERSON


def allowed(state: GrammarState, held_back=()) -> set[int]:
    bits = np.unpackbits(np.frombuffer(state.allowed(held_back), np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def test_only_what_the_grammar_allows_may_follow_and_at_its_end_an_end_token(tokenizer):
    state = start_grammar(tokenizer, PATTERN)
    texts = {tokenizer.decode([token]) for token in allowed(state)}
    assert {"y", "n"} <= texts
    assert all("yes!".startswith(text) or "no!".startswith(text) for text in texts)
    state.accept(tokenizer.encode("no"))
    assert {tokenizer.decode([token]) for token in allowed(state)} == {"!"}
    assert not state.is_complete
    state.accept(tokenizer.encode("!"))
    assert state.is_complete
    assert allowed(state) == tokenizer.eos_token_ids
    state.accept([tokenizer.eos_token_id])
    assert allowed(state) == tokenizer.eos_token_ids


def test_steps_can_be_taken_back_and_copies_are_independent(tokenizer):
    state = start_grammar(tokenizer, PATTERN)
    at_the_start = allowed(state)
    tokens = [*tokenizer.encode("yes!"), tokenizer.eos_token_id]
    assert state.count_valid([*tokens[:2], 77]) == 2
    assert allowed(state) == at_the_start
    state.accept(tokens[:1])
    after_one, copy = allowed(state), state.copy()
    state.accept(tokens[1:])
    state.rollback(len(tokens) - 1)
    assert allowed(state) == after_one
    state.rollback(1)
    assert allowed(state) == at_the_start
    assert allowed(copy) == after_one


def test_a_token_that_is_not_allowed_is_an_error_of_that_answer(tokenizer):
    state, other = (start_grammar(tokenizer, PATTERN) for _ in range(2))
    with pytest.raises(GrammarError, match=r"^the answer cannot follow its grammar: "):
        state.accept(tokenizer.encode("maybe"))
    assert allowed(other)


def test_end_tokens_are_held_back_while_anything_else_may_follow(tokenizer):
    state = start_grammar(tokenizer, Grammar.regex("a{1,2}"))
    (a,) = tokenizer.encode("a")
    ends = tokenizer.eos_token_ids
    state.accept([a])
    assert allowed(state) >= {a, *ends}
    assert not allowed(state, ends) & ends
    state.accept([a])
    assert allowed(state, ends) == ends


def test_what_must_follow_is_known(tokenizer):
    row = RowSampler(Sampling(), 1, 0, [1], tokenizer.eos_token_ids, start_grammar(tokenizer, PERSON))
    assert tokenizer.decode(row.forced()).startswith("{")
    assert RowSampler(Sampling(), 1, 0, [1], {0}).forced() == []


def test_the_mask_allows_forced_text_in_one_spelling(tokenizer):
    """So forced drafts are always accepted."""
    state, spelt = start_grammar(tokenizer, PERSON), 0
    while not state.is_complete:
        for token in state.forced():
            assert allowed(state) == {token}
            state.accept([token])
            spelt += 1
        if not state.is_complete:
            state.accept([min(allowed(state))])
    assert spelt >= 3


@pytest.mark.parametrize("vocabulary", [1, 31, 32, 33, 70])
def test_masks_are_applied_bit_by_bit(vocabulary):
    """Tokens beyond a mask are not allowed; a row without a mask stays."""
    random = np.random.default_rng(vocabulary)
    masks = [random.bytes(8), None, random.bytes(4)]
    logits = random.standard_normal((3, vocabulary)).astype(np.float32)
    wanted = logits.copy()
    for row, mask in enumerate(masks):
        for token in range(vocabulary):
            if mask is not None and not (token < 8 * len(mask) and mask[token // 8] >> token % 8 & 1):
                wanted[row, token] = -np.inf
    found = apply_masks(mx.array(logits), masks)
    np.testing.assert_array_equal(np.array(found), wanted)


WRONG = {
    "a group that is not closed": (Grammar.regex("("), "unclosed group"),
    "look-around": (Grammar.regex("a(?=b)"), "look-around"),
    "a back-reference": (Grammar.regex(r"(a)\1"), "backreferences"),
    "deep groups": (Grammar.regex("(" * 20_000 + "a" + ")" * 20_000), "invalid regex"),
    "no text at all": (Grammar.regex(r"[^\s\S]"), "no text matches it"),
    "a rule that is missing": (Grammar.lark("start: other"), "unknown name"),
    "deep rules": (Grammar.lark("start: " + "(" * 20_000 + '"a"' + ")" * 20_000), "too deeply nested"),
    "no type": (Grammar.json_schema({"type": "text"}), "Invalid type"),
    "a contradiction": (
        Grammar.json_schema({"type": "string", "minLength": 3, "maxLength": 2}),
        "Unsatisfiable",
    ),
    "a circle by allOf": (Grammar.json_schema({"allOf": [{"$ref": "#"}]}), "no text matches it"),
    "a keyword that is not implemented": (
        Grammar.json_schema({"oneOf": [{"minimum": 1}, {"maximum": 5}]}),
        "oneOf",
    ),
    "an explosion": (
        Grammar.json_schema(
            {"allOf": [{"anyOf": [{"properties": {f"{a}{b}": {}}} for b in range(4)]} for a in range(9)]}
        ),
        "schema too large",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_grammar_that_does_not_compile_is_refused(tokenizer, name):
    grammar, words = WRONG[name]
    with refused("grammar", function="Grammar") as caught:
        start_grammar(tokenizer, grammar)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "grammar", [PATTERN, PERSON, Grammar.lark('start: "yes" | "no"')], ids=lambda g: g.kind
)
@pytest.mark.parametrize("begin", ["", "<think>"])
def test_a_grammar_may_begin_after_a_free_text(tokenizer, grammar, begin):
    answer = {"regex": "yes!", "lark": "no", "json_schema": '{"age": 7}'}[grammar.kind]
    state = start_grammar(tokenizer, grammar.after(begin, "</think>"))
    if begin:
        assert not state.count_valid(tokenizer.encode("Hm"))
    for text in (f"{begin}\nIs 1 < 2?\n</thin", "k>\n\n"):
        assert not state.is_complete
        state.accept(tokenizer.encode(text))
    assert state.count_valid(tokenizer.encode("Hm")) == 0
    state.accept(tokenizer.encode(answer))
    assert state.is_complete
    assert allowed(state) == tokenizer.eos_token_ids


def test_a_free_text_is_between_tags_that_are_tokens():
    """As in models of Qwen: a tag is forced, and ends the text, as that token."""
    tokenizer = chat_models.tokenizer_with_tags("")
    (begin,), (end,) = (tokenizer.encode(tag) for tag in ("<think>", "</think>"))
    state = start_grammar(tokenizer, PATTERN.after("<think>", "</think>"))
    assert state.forced() == [begin]
    assert allowed(state) == {begin}
    state.accept([begin, *tokenizer.encode("Is 1 < 2?"), end, *tokenizer.encode("yes!")])
    assert state.is_complete


def test_a_grammar_is_compiled_once(tokenizer, monkeypatch):
    grammar = Grammar.regex("only once")
    first = start_grammar(tokenizer, grammar)
    first.accept(tokenizer.encode("only"))
    monkeypatch.setattr(compiler, "TRIALS", None)
    assert allowed(start_grammar(tokenizer, grammar)) != allowed(first)


def test_without_llguidance_the_command_that_installs_it_is_named(tokenizer, monkeypatch):
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"expected none: llguidance is not installed; pip install"):
        start_grammar(tokenizer, PATTERN)


def test_a_tokenizer_of_another_library_is_refused():
    with pytest.raises(
        UnsupportedError, match=r"^Grammar: grammar: got a grammar, expected none with a tokenizer"
    ):
        start_grammar(ByteTokenizer(), PATTERN)
