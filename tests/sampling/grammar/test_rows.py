"""Rows of a batch that follow grammars beside others: samples, drafts, forks, and grammars at their limit."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import GrammarError, Sampling
from tiny_llm.sampling.grammar import start_grammar
from tiny_llm.sampling.rows import RowSampler, verify_rows

from ...support.generation.sampled_rows import sample_rows
from ...support.refusal import refused
from .grammars import PATTERN, PERSON


def test_an_answer_with_a_grammar_goes_on_from_its_tokens(tokenizer):
    logits = mx.array(np.random.default_rng(5).standard_normal((1, 4096)).astype(np.float32) * 4)

    def answer(done: list[int]) -> list[int]:
        state = start_grammar(tokenizer, PERSON)
        row = RowSampler(Sampling(temp=1.0), 1, 0, [1], tokenizer.eos_token_ids, state)
        row.accept(done)
        while not row.tokens or row.tokens[-1] not in tokenizer.eos_token_ids:
            row.accept([sample_rows(logits, [row])[0].token_id])
        return row.tokens

    whole = answer([])
    assert answer(whole[:3]) == answer(whole[:-1]) == whole


@pytest.mark.parametrize("given", [{}, {"temp": 2.0}], ids=str)
def test_rows_with_grammars_follow_them_beside_others(tokenizer, given):
    """Every row with a grammar gives a whole text of it; the tokens of others stay what they were."""
    ends = tokenizer.eos_token_ids

    def rows(count):
        return [
            *(
                RowSampler(Sampling(**given), seed, 0, [1], ends, start_grammar(tokenizer, grammar))
                for seed in range(count)
                for grammar in (PATTERN, PERSON)
            ),
            RowSampler(Sampling(**given), 5, 0, [1], ends),
        ]

    together, alone = rows(3), rows(0)
    random = np.random.default_rng(1)
    for _ in range(40):
        logits = mx.array(random.standard_normal((1, 4096)).astype(np.float32) * 4)
        for batch in (together, alone):
            drawn = sample_rows(mx.broadcast_to(logits, (len(batch), 4096)), batch)
            for row, token in zip(batch, drawn, strict=True):
                if not (row.grammar and row.tokens and row.tokens[-1] in ends):
                    row.accept([token.token_id])
    assert together[-1].tokens == alone[-1].tokens
    texts = [tokenizer.decode(row.tokens[:-1]) for row in together[:-1]]
    assert set(texts[::2]) <= {"yes!", "no!"}
    assert all(text.startswith('{"age": ') and text.endswith("}") for text in texts[1::2])


@pytest.mark.parametrize("given", [{}, {"temp": 1.0}], ids=str)
def test_drafts_with_a_grammar_change_nothing(tokenizer, given):
    """Right drafts, wrong ones, ones that the grammar forbids, and an end token as a draft."""

    def logits_after(tokens):
        return mx.array(np.random.default_rng([3, *tokens]).standard_normal(4096).astype(np.float32) * 3)

    def answer(drafts_of):
        row = RowSampler(
            Sampling(**given), 4, 0, [1], tokenizer.eos_token_ids, start_grammar(tokenizer, PERSON)
        )
        while not (row.tokens and row.tokens[-1] in tokenizer.eos_token_ids):
            drafts = drafts_of(row.tokens)
            logits = mx.stack(
                [logits_after([*row.tokens, *drafts[:place]]) for place in range(len(drafts) + 1)]
            )
            (drawn,) = verify_rows(logits, [row], [drafts])
            row.accept([each.token_id for each in drawn])
        return row.tokens

    plain = answer(lambda tokens: [])
    assert answer(lambda tokens: plain[len(tokens) : len(tokens) + 4]) == plain
    assert answer(lambda tokens: [*plain[len(tokens) : len(tokens) + 1], 77, 78]) == plain
    assert answer(lambda tokens: [tokenizer.eos_token_id, 5]) == plain


def test_a_fork_continues_in_the_grammar_on_its_own(tokenizer):
    row = RowSampler(
        Sampling(temp=1.0), 1, 0, [1], tokenizer.eos_token_ids, start_grammar(tokenizer, PATTERN)
    )
    row.accept(tokenizer.encode("n"))
    other = row.fork(1)
    row.accept(tokenizer.encode("o!"))
    assert row.grammar is not None
    assert other.grammar is not None
    assert (row.grammar.is_complete, other.grammar.is_complete) == (True, False)


def test_a_grammar_at_its_limit_fails_its_own_row(tokenizer):
    """A row whose state is in error, as after a step beyond llguidance's limits."""
    broken, good = (
        RowSampler(Sampling(), 1, 0, [1], tokenizer.eos_token_ids, start_grammar(tokenizer, PATTERN))
        for _ in range(2)
    )
    assert broken.grammar is not None
    with pytest.raises(GrammarError):
        broken.grammar.accept([77])
    logits = mx.zeros((3, 4096))
    free = RowSampler(Sampling(), 1, 0, [1], ())
    found = sample_rows(logits, [broken, good, free])
    assert isinstance(found[0].error, GrammarError)
    assert [drawn.error for drawn in found[1:]] == [None, None]
    assert found[1] == sample_rows(logits[:1], [good])[0]


def test_a_grammar_and_ignored_end_tokens_contradict_each_other(tokenizer):
    with refused("ignore_eos", function="RowSampler"):
        RowSampler(Sampling(ignore_eos=True), 1, 0, [1], {0}, start_grammar(tokenizer, PATTERN))
