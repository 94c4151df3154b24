"""Week 4, day 6: structured output. Masks on logits, grammars that move with drafts, tags in a stream."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import GrammarError
from tiny_llm.loading import load_tokenizer
from tiny_llm.sampling.grammar import Grammar, apply_masks, start_grammar
from tiny_llm.sampling.params import Sampling
from tiny_llm.sampling.rows import RowSampler, verify_rows
from tiny_llm.server.api.pieces import MAX_SPACE, AnswerReader, Call, Content, split_at_tag

INF = float("inf")
TAG = "<tool_call>"


def masked(logits, *masks):
    return apply_masks(mx.array(logits), masks).tolist()


def test_task_1_a_token_whose_bit_is_0_gets_minus_infinity():
    """The lowest bit of a byte is its first token: 5 = 1 + 4 allows the tokens 0 and 2."""
    logits = [1.0, 2, 3, 4, 5, 6, 7, 8]
    assert masked([logits], b"\x05") == [[1, -INF, 3, -INF, -INF, -INF, -INF, -INF]]
    assert masked([logits], b"\x80") == [[-INF] * 7 + [8]]


def test_task_1_the_second_byte_is_for_the_next_eight_tokens():
    assert masked([[float(token) for token in range(16)]], b"\x01\x02") == [
        [0] + [-INF] * 8 + [9] + [-INF] * 6
    ]


def test_task_1_each_row_has_its_own_mask():
    """None allows every token."""
    rows = [[1.0, 2, 3], [4.0, 5, 6], [7.0, 8, 9]]
    assert masked(rows, b"\x03", None, b"\x04") == [[1, 2, -INF], [4, 5, 6], [-INF, -INF, 9]]


@pytest.mark.parametrize("vocabulary", [1, 7, 8, 9, 16, 21])
def test_task_1_bits_that_are_missing_are_0(vocabulary):
    """A model may have more columns of logits than its tokenizer has tokens; further bits mean nothing."""
    found = masked([[0.5] * vocabulary] * 2, b"\xff" * 4, b"\xff")
    assert found == [[0.5] * vocabulary, [0.5] * min(vocabulary, 8) + [-INF] * max(vocabulary - 8, 0)]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_task_1_the_result_is_float32(dtype):
    """Allowed logits keep their values, also 0 and minus infinity."""
    found = apply_masks(mx.array([[0.0, -INF, 2.5, 1.0]], dtype), [b"\x07"])
    assert found.dtype == mx.float32
    assert found.tolist() == [[0, -INF, 2.5, -INF]]


def test_task_1_allowed_tokens_share_all_of_the_probability():
    """The checkpoint: of 0.9, 0.06 and 0.04 the last two are allowed."""
    found = apply_masks(mx.log(mx.array([[0.9, 0.06, 0.04]])), [b"\x06"])
    np.testing.assert_allclose(mx.softmax(found, axis=-1), [[0, 0.6, 0.4]], atol=1e-6)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("tiny")


@pytest.fixture(scope="module")
def texts(tokenizer):
    """The text of each token, by its id; end tokens have none."""
    return {token: tokenizer.decode([token]) for token in range(4096) if token not in tokenizer.eos_token_ids}


WORDS = [a + b + c for a in "ab" for b in "ab" for c in "ab"]


@pytest.fixture
def state(tokenizer):
    return start_grammar(tokenizer, Grammar.regex("[ab]{3}"))


def letters(tokenizer, text):
    """A token for each letter."""
    return [token for letter in text for token in tokenizer.encode(letter)]


def bits(mask):
    """The tokens that a mask allows."""
    return set(np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")).tolist())


@pytest.fixture
def may_follow(tokenizer, texts):
    """The tokens that may follow a text, found by trying all of them; end tokens after a whole word."""

    def find(done):
        ends = tokenizer.eos_token_ids if done in WORDS else set()
        return {
            t for t, text in texts.items() if text and any(w.startswith(done + text) for w in WORDS)
        } | ends

    return find


def test_task_2_tokens_that_are_tried_are_removed(tokenizer, state, may_follow):
    """All of them, at the end of the block; inside of it they count."""
    state.accept(letters(tokenizer, "a"))
    with state.trying() as trial:
        assert bits(trial.allowed()) == may_follow("a")
        trial.accept(letters(tokenizer, "b"))
        assert bits(trial.allowed()) == may_follow("ab")
        trial.accept(letters(tokenizer, "b"))
        assert bits(trial.allowed()) == may_follow("abb")
    assert bits(state.allowed()) == may_follow("a")
    with state.trying():
        pass
    assert bits(state.allowed()) == may_follow("a")


def test_task_2_tokens_that_are_tried_are_removed_after_an_error_too(tokenizer, state, may_follow):
    """An error inside of the block leaves it, and the answer goes on."""

    def fail():
        with state.trying() as trial:
            trial.accept(letters(tokenizer, "ab"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert bits(state.allowed()) == may_follow("")


def test_task_2_end_tokens_are_tried_like_others(tokenizer, state, may_follow):
    """The library does not count them; the state does."""
    state.accept(letters(tokenizer, "ab"))
    with state.trying() as trial:
        trial.accept([*letters(tokenizer, "a"), tokenizer.eos_token_id, tokenizer.eos_token_id])
        with pytest.raises(GrammarError):
            trial.accept(letters(tokenizer, "a"))
    assert bits(state.allowed()) == may_follow("ab")


def test_task_2_a_row_without_a_grammar_has_no_masks():
    """None for each draft, and one more."""
    assert RowSampler(Sampling(), 1, 0, [1], {0}).masks([]) == [None]
    assert RowSampler(Sampling(), 1, 0, [1], {0}).masks([5, 6]) == [None] * 3


def test_task_2_each_mask_is_for_the_text_with_the_drafts_before_it(tokenizer, state, may_follow):
    """And the row stays where it was: the drafts may be wrong."""
    row = RowSampler(Sampling(), 1, 0, [1], tokenizer.eos_token_ids, state)
    row.accept(letters(tokenizer, "a"))
    for _ in range(2):
        masks = row.masks(letters(tokenizer, "bb"))
        assert [bits(mask) for mask in masks] == [may_follow(text) for text in ("a", "ab", "abb")]
        assert [bits(mask) for mask in row.masks([])] == [may_follow("a")]
    assert row.tokens == letters(tokenizer, "a")


def test_task_2_after_a_draft_that_is_not_allowed_there_are_no_masks(tokenizer, state, may_follow):
    """No error: the draft is rejected, and nothing after it matters."""
    row = RowSampler(Sampling(), 1, 0, [1], tokenizer.eos_token_ids, state)
    first, second, *others = row.masks(letters(tokenizer, "axb"))
    assert [bits(first), bits(second)] == [may_follow(""), may_follow("a")]
    assert others == [None, None]


def test_task_2_end_tokens_are_held_back_by_the_length_with_drafts(tokenizer):
    """At least 3 tokens of `a{1,9}`: an end may follow the third one, be it a draft or not."""
    ends = tokenizer.eos_token_ids
    state = start_grammar(tokenizer, Grammar.regex("a{1,9}"))
    row = RowSampler(Sampling(min_tokens=3), 1, 0, [1], ends, state)
    row.accept(letters(tokenizer, "a"))
    may_end = [ends <= bits(mask) for mask in row.masks(letters(tokenizer, "aaa"))]
    assert may_end == [False, False, True, True]


def test_task_2_drafts_with_a_grammar_give_the_tokens_without_drafts(tokenizer):
    """Forced text, wrong drafts and forbidden ones; the model prefers other tokens everywhere."""
    ends = tokenizer.eos_token_ids

    def answer(drafts_of):
        state = start_grammar(tokenizer, Grammar.regex('\\{"name": "[a-c]{2}"\\}'))
        row, steps = RowSampler(Sampling(temp=1.0), 3, 0, [1], ends, state), 0
        while not (row.tokens and row.tokens[-1] in ends):
            drafts = drafts_of(row)
            places = [(1, *row.tokens, *drafts[:place]) for place in range(len(drafts) + 1)]
            random = [np.random.default_rng(place).standard_normal(4096) for place in places]
            (drawn,) = verify_rows(mx.array(np.stack(random).astype(np.float32)), [row], [drafts])
            assert drawn[-1].error is None
            row.accept([each.token_id for each in drawn])
            steps += 1
        return row.tokens, steps

    plain, steps = answer(lambda row: [])
    assert steps == len(plain)
    assert answer(lambda row: plain[len(row.tokens) : len(row.tokens) + 4]) == (plain, -(-len(plain) // 5))
    assert answer(lambda row: letters(tokenizer, "{x"))[0] == plain
    forced, fewer = answer(lambda row: row.forced()[:4])
    assert forced == plain
    assert fewer < steps / 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a<tool_call>b", ("a", True, "b")),
        ("a \n<tool_call>\nb", ("a", True, "\nb")),
        ("<tool_call>", ("", True, "")),
        ("a<tool_call>b<tool_call>c", ("a", True, "b<tool_call>c")),
        ("", ("", False, "")),
    ],
)
@pytest.mark.parametrize("final", [False, True])
def test_task_3_a_tag_divides_the_text(text, expected, final):
    """Space before the tag is dropped, space after it is not."""
    assert split_at_tag(text, TAG, final) == expected


@pytest.mark.parametrize(
    ("text", "certain", "held"),
    [
        ("see <to", "see", " <to"),
        ("see<", "see", "<"),
        ("<tool_call", "", "<tool_call"),
        ("<<tool_", "<", "<tool_"),
        ("see ", "see", " "),
        (" \n", "", " \n"),
        ("see <b>", "see <b>", ""),
        ("see <toy", "see <toy", ""),
        ("see", "see", ""),
    ],
)
def test_task_3_what_may_be_the_beginning_of_a_tag_is_held_back(text, certain, held):
    """With the space before it, which the tag would drop; at the end of the answer nothing is."""
    assert split_at_tag(text, TAG, False) == (certain, False, held)
    assert split_at_tag(text, TAG, True) == (text, False, "")


def test_task_3_the_longest_beginning_is_held_back():
    """Of a tag that contains its own beginning: after aab either a or aab may become aabaac."""
    assert split_at_tag("xaabaa", "aabaac", False) == ("x", False, "aabaa")
    assert split_at_tag("xaab aa", "aabaac", False) == ("xaab", False, " aa")


def test_task_3_much_space_is_not_held_back():
    """A model may write nothing else: more than MAX_SPACE characters are sent."""
    few, many = " " * (MAX_SPACE - 10), " " * (MAX_SPACE + 1)
    assert split_at_tag("a" + few, TAG, False) == ("a", False, few)
    assert split_at_tag("a" + many, TAG, False) == ("a" + many, False, "")
    assert split_at_tag("a" + many + "<to", TAG, False) == ("a" + many, False, "<to")


@pytest.mark.parametrize("text", ["I see <b>. <tool_call> x", "<<tool_call>", "no tag <tool_", "a  b  "])
def test_task_3_it_does_not_matter_how_the_text_arrives(text):
    """Two parts, cut anywhere, give what the whole text gives."""
    before, tag, after = text.partition(TAG)
    whole = (before.rstrip(), True, after) if tag else (text, False, "")
    for cut in range(len(text) + 1):
        sent, found, rest = split_at_tag(text[:cut], TAG, False)
        if found:
            assert (sent, found, rest + text[cut:]) == whole
        else:
            assert sent + rest == text[:cut]
            more, found, after = split_at_tag(rest + text[cut:], TAG, True)
            assert (sent + more, found, after) == whole


def test_task_3_a_reader_sends_text_at_once_and_reads_the_call():
    """Words without a tag are not delayed; the call arrives letter by letter."""
    reader = AnswerReader(tools=True)
    assert reader.feed("Let me") == [Content("Let me")]
    assert reader.feed(" see <b>.") == [Content(" see <b>.")]
    call = '\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    (piece,) = [piece for letter in call for piece in reader.feed(letter)]
    assert isinstance(piece, Call)
    assert (piece.name, piece.arguments) == ("f", '{"a":1}')
    assert reader.finish() == []
