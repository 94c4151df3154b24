"""Parameters that change logits or where an answer ends: in a stream, in a list, with a draft model."""

from __future__ import annotations

import pytest

from tiny_llm import Sampling, UnsupportedError, speculative_generate, stream_generate
from tiny_llm.generation.batching import run_batch
from tiny_llm.generation.request import Request

from ..support.generation.byte_text import END, VOCABULARY, ByteTokenizer
from ..support.generation.fake_models import CachedFake, FullContextFake, PagedFake
from ..support.generation.rules import scripted
from ..support.refusal import case_id, refused

FAKES = pytest.mark.parametrize("fake", [FullContextFake, CachedFake, PagedFake])


def scored(text: bytes, *, end: float = 0.0):
    """A rule with falling scores for the bytes of `text`, whatever came before, and one for the end token."""
    scores = [-30.0] * VOCABULARY
    for rank, byte in enumerate(text):
        scores[byte] = 10.0 - rank
    scores[END] = end
    return lambda context: scores


def answers(fake, rule, sampling: Sampling, **options) -> tuple[str, str | None]:
    generation = stream_generate(fake(rule), ByteTokenizer(), "hi", sampling=sampling, **options)
    return "".join(generation), generation.finish_reason


def in_a_list(rule, sampling: Sampling, count: int = 3) -> list[tuple[str, str | None]]:
    model = CachedFake(rule)

    def make(index: int) -> Request:
        return Request(model, ByteTokenizer(), "hi", 8, index, sampling=sampling)

    requests = run_batch(model, count, make, 64, 2)
    return [(request.result.text, request.result.finish_reason) for request in requests]


CASES = {
    "presence: once for each token": (
        {"presence_penalty": 1.75, "max_tokens": 4}, b"abcd", "abaa", "length",
    ),
    "frequency: the more often, the less": (
        {"frequency_penalty": 0.75, "max_tokens": 6}, b"abc", "aababc", "length",
    ),
    "bias: against the best": ({"logit_bias": {97: -5}, "max_tokens": 3}, b"abc", "bbb", "length"),
    "bias: for an unlikely one": ({"logit_bias": {120: 100}, "max_tokens": 2}, b"abc", "xx", "length"),
    "min_tokens holds the end back": ({"min_tokens": 3, "max_tokens": 9}, b"", "\0\0\0", "stop"),
    "a stop token ends, unseen": (
        {"stop_token_ids": [98], "frequency_penalty": 0.75}, b"ab", "aa", "stop",
    ),
    "ignore_eos goes on": (
        {"ignore_eos": True, "logit_bias": {END: -100}, "max_tokens": 3}, b"", "\0\0\0", "length",
    ),
}  # fmt: skip


@FAKES
@pytest.mark.parametrize("case", CASES)
def test_parameters_decide_text_and_end(fake, case):
    given, text, wanted, reason = CASES[case]
    rule = scored(text, end=12.0 if not text else -30.0)
    assert answers(fake, rule, Sampling(**given)) == (wanted, reason)
    if fake is CachedFake:
        assert in_a_list(rule, Sampling(**given)) == [(wanted, reason)] * 3


def test_end_tokens_that_are_ignored_are_tokens_like_others():
    """The model says `ab`, its end token, `cd` and the other end token."""
    tokenizer = ByteTokenizer()
    tokenizer.eos_token_ids = {END, END + 1}
    script = [*b"ab", END, *b"cd", END + 1, *b"ef"]

    def generation(**given):
        model = CachedFake(scripted({"hi": script}))
        tokenizer_of_all = ByteTokenizer(EveryToken)
        tokenizer_of_all.eos_token_ids = tokenizer.eos_token_ids
        found = stream_generate(model, tokenizer_of_all, "hi", sampling=Sampling(**given))
        return "".join(found), found.finish_reason, found.result.token_ids[-1]

    assert generation() == ("ab", "stop", END)
    assert generation(ignore_eos=True, max_tokens=7) == ("ab<256>cd<257>e", "length", ord("e"))
    assert generation(ignore_eos=True, stop_token_ids=[END + 1]) == ("ab<256>cd", "stop", END + 1)


class EveryToken:
    """A detokenizer that shows end tokens by their number."""

    def __init__(self, tokenizer: object = None):
        self.reset()

    def reset(self) -> None:
        self.text = ""

    def add_token(self, token: int) -> None:
        self.text += chr(token) if token < END else f"<{token}>"


@pytest.mark.parametrize(
    ("min_tokens", "shown"), [(0, "a"), (1, "a"), (2, "abca"), (4, "abca"), (5, "abcabc")]
)
def test_stop_strings_count_after_the_first_tokens(min_tokens, shown):
    sampling = Sampling(stop="b", min_tokens=min_tokens)
    assert answers(CachedFake, scripted({"hi": list(b"abcabcbc")}), sampling) == (shown, "stop")


@pytest.mark.parametrize(
    "given", [{"logit_bias": {VOCABULARY: 1.0}}, {"stop_token_ids": [VOCABULARY]}], ids=case_id
)
def test_ids_outside_of_the_vocabulary_are_refused_at_the_call(given):
    (argument,) = given
    model = CachedFake(scripted({"hi": list(b"ab")}))
    with refused(argument, function="stream_generate"):
        stream_generate(model, ByteTokenizer(), "hi", sampling=Sampling(**given))
    with refused(argument, function="Request"):
        Request(model, ByteTokenizer(), "hi", sampling=Sampling(**given))
    assert model.calls == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"presence_penalty": 1.0}, "a presence penalty"),
        ({"frequency_penalty": 1.0}, "a frequency penalty"),
        ({"logit_bias": {1: 1.0}}, "a logit bias"),
        ({"min_tokens": 2}, "min_tokens"),
    ],
    ids=case_id,
)
def test_what_a_draft_model_does_not_honour_is_refused_with_it(given, words):
    model = CachedFake(scripted({"hi": list(b"ab")}))
    with pytest.raises(
        UnsupportedError, match=rf"^stream_generate: sampling: got {words}, expected none with"
    ):
        stream_generate(model, ByteTokenizer(), "hi", sampling=Sampling(**given), draft_model=model)
    with pytest.raises(
        UnsupportedError, match=rf"^speculative_generate: sampling: got {words}, expected none"
    ):
        speculative_generate(model, model, *[ByteTokenizer()] * 2, "hi", sampling=Sampling(**given))


def test_a_draft_model_honours_stop_tokens_and_ignored_end_tokens():
    model = CachedFake(scripted({"hi": list(b"abcd")}))
    draft = CachedFake(model.rule)
    for given, shown in (({"stop_token_ids": [ord("c")]}, "ab"), ({"stop": "d"}, "abc")):
        assert answers(CachedFake, model.rule, Sampling(**given), draft_model=draft) == (shown, "stop")
