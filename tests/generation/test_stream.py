"""The stream of an answer: its pieces, its end, its statistics, and the memory that it frees."""

import gc
from collections.abc import Iterator

import pytest

from tiny_llm.generate import speculative_generate, stream_generate
from tiny_llm.generation.generation import Generation
from tiny_llm.generation.text import TextStream
from tiny_llm.sampling.params import Sampling
from tiny_llm.sampling.processors import make_repetition_penalty
from tiny_llm.sampling.stop import StopStrings

from ..support.generation.byte_text import END, ByteDetokenizer, ByteTokenizer, LookAheadDetokenizer, as_text
from ..support.generation.fake_models import CachedFake, FullContextFake, PagedFake
from ..support.generation.rules import failing_after, greedy, random_rule, scripted
from ..support.page_pool import assert_consistent
from ..support.refusal import refused

TEXT = "Grüße, 🦙! "
FAKES = pytest.mark.parametrize(
    "fake", [FullContextFake, CachedFake, PagedFake], ids=["full", "dense", "paged"]
)


def answer(text: str | bytes, fake=CachedFake, **options) -> Generation:
    """The stream of a model whose answer to `hi` is that text."""
    tokens = list(text.encode() if isinstance(text, str) else text)
    return stream_generate(fake(scripted({"hi": tokens})), ByteTokenizer(), "hi", **options)


@FAKES
def test_pieces_are_whole_characters(fake):
    generation = answer(TEXT, fake)
    assert list(generation) == list(TEXT)
    assert generation.finish_reason == "stop"


@FAKES
def test_all_kinds_of_models_give_the_same_answer(fake):
    rule = random_rule(1)
    generation = stream_generate(fake(rule), ByteTokenizer(), "Hello", prefill_step=2)
    assert "".join(generation) == as_text(greedy(rule, "Hello"))


@FAKES
@pytest.mark.parametrize("max_tokens", [1, 2, 5, 6, 9])
def test_max_tokens_ends_an_answer(fake, max_tokens):
    """The end token counts; an incomplete character is not shown; no step is wasted."""
    model = fake(scripted({"hi": list("aüß".encode())}))
    generation = stream_generate(model, ByteTokenizer(), "hi", max_tokens=max_tokens)
    assert "".join(generation) == as_text(list("aüß".encode())[:max_tokens])
    assert generation.statistics.generated_tokens == min(max_tokens, 6)
    assert generation.finish_reason == ("stop" if max_tokens >= 6 else "length")
    assert len(model.calls) <= max_tokens


@FAKES
def test_the_context_of_the_model_ends_an_answer(fake):
    model = fake(scripted({"hi": list(b"abcdefgh")}), context=7)
    generation = stream_generate(model, ByteTokenizer(), "hi", max_tokens=100)
    assert ("".join(generation), generation.finish_reason) == ("abcde", "length")


@pytest.mark.parametrize("token", [END, END + 1])
def test_each_of_several_end_tokens_ends_an_answer(token):
    tokenizer = ByteTokenizer()
    tokenizer.eos_token_ids = {END, END + 1}
    model = CachedFake(scripted({"hi": [*b"abc", token, *b"def"]}))
    generation = stream_generate(model, tokenizer, "hi")
    assert ("".join(generation), generation.finish_reason) == ("abc", "stop")


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        (["🦙"], "Grüße, "),
        (["e, "], "Grüß"),
        (["üße", "ß"], "Grü"),
        (["! !", "! x"], TEXT),
        (["! "], "Grüße, 🦙"),
        (["G"], ""),
        ("ße", "Grü"),
    ],
)
@pytest.mark.parametrize("detokenizer", [ByteDetokenizer, LookAheadDetokenizer])
def test_a_stop_string_is_found_across_tokens_and_not_shown(stop, shown, detokenizer):
    """Also a stop string that the detokenizer completes only at the end of the text."""
    model = CachedFake(scripted({"hi": list(TEXT.encode())}))
    generation = stream_generate(model, ByteTokenizer(detokenizer), "hi", stop=stop)
    pieces = list(generation)
    assert "".join(pieces) == shown
    assert "" not in pieces
    assert generation.finish_reason == "stop"
    assert {cache.released for cache in model.caches} == {1}


def test_a_stop_string_at_the_limit_is_a_stop():
    generation = answer("abcdef", stop=["cd"], max_tokens=4)
    assert ("".join(generation), generation.finish_reason) == ("ab", "stop")


def test_nothing_runs_before_the_first_piece_is_requested():
    model = CachedFake(scripted({"hi": list(b"abc")}))
    generation = stream_generate(model, ByteTokenizer(), "hi")
    generation.close()
    assert model.calls == model.caches == []
    assert list(generation) == []


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Objects in a reference cycle would stay in memory."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a draft"])
@pytest.mark.parametrize("leave", ["close", "drop"])
def test_leaving_early_returns_all_pages(draft, leave):
    model = PagedFake(scripted({"hi": list(b"abcdef")}))
    more = {"draft_model": PagedFake(model.rule)} if draft else {}
    generation = stream_generate(model, ByteTokenizer(), "hi", **more)
    assert [next(generation), next(generation)] == ["a", "b"]
    assert model.page_pool.used_page_ids
    if leave == "close":
        generation.close()
        assert generation.finish_reason is None
    else:
        del generation
    for pool in [model.page_pool] + [fake.page_pool for fake in more.values()]:
        assert_consistent(pool)
        assert not pool.used_page_ids


def test_an_error_of_the_model_returns_all_pages():
    model = PagedFake(failing_after(scripted({"hi": list(b"abcdef")}), 5))
    with pytest.raises(ZeroDivisionError):
        list(stream_generate(model, ByteTokenizer(), "hi"))
    assert not model.page_pool.used_page_ids


def test_a_draft_changes_the_number_of_passes_and_not_the_answer():
    rule = scripted({"hi": list(b"0123456789abcdefghij")})
    model, draft = CachedFake(rule), CachedFake(rule)
    generation = stream_generate(model, ByteTokenizer(), "hi", draft_model=draft, max_tokens=16)
    assert "".join(generation) == "0123456789abcdef"
    assert len(model.calls) == 1 + 3


@pytest.mark.parametrize("step", [1, 3, 7, 8, 512])
def test_a_prompt_is_read_in_chunks(step):
    rule = random_rule(2)
    model = CachedFake(rule)
    generation = stream_generate(model, ByteTokenizer(), "1234567", prefill_step=step, max_tokens=1)
    assert "".join(generation) == as_text(greedy(rule, "1234567", 1))
    assert [width for _, width in model.calls] == [len(chunk) for chunk in batches("1234567", step)]


def batches(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def test_a_seed_repeats_an_answer():
    def text(seed):
        sampling = Sampling(temp=1.0, top_k=50, seed=seed)
        model = CachedFake(random_rule(3), context=60)
        return "".join(stream_generate(model, ByteTokenizer(), "Hello", sampling=sampling))

    assert text(1) == text(1) != text(2)


class Clock:
    """A clock that a test moves by hand."""

    now = 10.0

    def __call__(self) -> float:
        return self.now

    def tokens(self, *steps: tuple[int, float]) -> Iterator[int]:
        """Tokens, and the seconds that each of them takes."""
        for token, seconds in steps:
            self.now += seconds
            yield token


@pytest.mark.parametrize("watched", [0.0, 60.0], ids=["at once", "a minute later"])
def test_statistics_leave_out_the_time_of_the_caller(watched):
    """The first token comes after 2 seconds, each other one after half a second; the fifth is the end."""
    clock = Clock()
    tokens = clock.tokens((ord("a"), 2.0), *((token, 0.5) for token in [*b"bcd", END]))
    generation = Generation(
        tokens, TextStream(ByteDetokenizer()), frozenset([END]), StopStrings([]), 6, clock
    )
    statistics = generation.statistics
    clock.now += 3600  # between the call and the first wish for a piece
    assert (statistics.prefill_tokens_per_second, statistics.decode_tokens_per_second) == (0, 0)
    assert next(generation) == "a"
    assert (statistics.time_to_first_token, statistics.decode_tokens_per_second) == (2.0, 0)
    for expected in "bcd":
        clock.now += watched
        assert next(generation) == expected
    clock.now += watched
    assert list(generation) == []
    assert (statistics.prompt_tokens, statistics.generated_tokens) == (6, 5)
    assert (statistics.time_to_first_token, statistics.decode_seconds) == (2.0, 2.0)
    assert statistics.prefill_tokens_per_second == 3.0
    assert statistics.decode_tokens_per_second == 2.0


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": -1}),
        ("prefill_step", {"prefill_step": 0}),
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": "x" * 9}),
        ("draft_model", {"draft_model": CachedFake(random_rule()), "model": FullContextFake(random_rule())}),
    ],
)
def test_invalid_arguments_are_refused_at_the_call(argument, options):
    """Not when the first piece is requested."""
    possible = {"model": CachedFake(random_rule(), 9), "tokenizer": ByteTokenizer(), "prompt": "hi"}
    with refused(argument, function="stream_generate"):
        stream_generate(**{**possible, **options})


@pytest.mark.parametrize("difference", [-511, -128, 0, 511])
def test_a_draft_may_have_another_padding(difference):
    model, draft = (CachedFake(scripted({"hi": list(b"abc")})) for _ in range(2))
    model.vocab_size, draft.vocab_size = 1024, 1024 + difference
    assert "".join(stream_generate(model, ByteTokenizer(), "hi", draft_model=draft)) == "abc"


@pytest.mark.parametrize("difference", [-512, 512])
def test_a_draft_of_another_vocabulary_is_refused(difference):
    """Also where both come with the same tokenizer."""
    model, draft, tokenizer = CachedFake(random_rule()), CachedFake(random_rule()), ByteTokenizer()
    model.vocab_size, draft.vocab_size = 1024, 1024 + difference
    with refused("draft_model", function="stream_generate"):
        stream_generate(model, tokenizer, "hi", draft_model=draft)
    with refused("draft_model", function="speculative_generate"):
        speculative_generate(draft, model, tokenizer, tokenizer, "hi")
    assert draft.calls == model.calls == []


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="stop: got"):
        answer("abc", stop=[""])


def test_processors_and_a_draft_exclude_each_other():
    with refused("processors", NotImplementedError, "stream_generate"):
        answer("abc", draft_model=CachedFake(random_rule()), processors=[make_repetition_penalty(2.0)])


def test_nothing_is_printed(capsys):
    list(answer(TEXT))
    assert capsys.readouterr() == ("", "")
