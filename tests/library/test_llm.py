"""`LLM`: loading by name, and the results of generate, chat and stream."""

from __future__ import annotations

import shutil
from itertools import pairwise
from types import MappingProxyType

import mlx.core as mx
import pytest

import tiny_llm
from tiny_llm import LLM, ArgumentTypeError, Grammar, LoadError, Result, Sampling
from tiny_llm.generation.sequence import next_logits
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.runtime.device import activation_dtype

from ..support.refusal import refused

QUESTION = "What is a token?"
MESSAGES = [{"role": "user", "content": QUESTION}]
STORY = "Once upon a time"
PROMPTS = [STORY, "The fox", "A token is", "There was", "In the morning"]
HOT = Sampling(temp=3.0, seed=1, max_tokens=12)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


def comparable(result: Result) -> tuple[str, tuple[int, ...], str | None]:
    """A result without what differs from run to run."""
    return result.text, result.token_ids, result.finish_reason


def test_a_question_is_answered_through_the_chat_template(llm):
    result = llm.chat(QUESTION)
    assert "token" in result.text
    assert result.text.endswith(".")
    assert (result.finish_reason, result.logprobs) == ("stop", None)
    assert result.token_ids[-1] == llm.tokenizer.eos_token_id
    assert llm.tokenizer.decode(result.token_ids[:-1]) == result.text
    prompt = llm.tokenizer.apply_chat_template(MESSAGES)
    statistics = result.statistics
    assert statistics.prompt_tokens == len(llm.tokenizer.encode(prompt, add_special_tokens=False))
    assert statistics.generated_tokens == len(result.token_ids)
    assert statistics.time_to_first_token > 0
    assert comparable(llm.chat(MESSAGES)) == comparable(result)
    assert comparable(llm.generate(prompt)) == comparable(result)


def test_a_text_is_continued_as_it_is(llm):
    result = llm.generate(STORY, max_tokens=6)
    assert (len(result.token_ids), result.finish_reason) == (6, "length")
    assert result.statistics.prompt_tokens == len(llm.tokenizer.encode(STORY, add_special_tokens=False))
    assert result.text.startswith(", there was")


def test_a_list_is_answered_in_order_as_each_prompt_alone():
    llm = LLM("tiny", dtype="float32")  # in bfloat16 a batch on a GPU can round a close choice differently
    together = llm.generate(PROMPTS, max_tokens=9, batch_size=2)
    assert [comparable(result) for result in together] == [
        comparable(llm.generate(p, max_tokens=9)) for p in PROMPTS
    ]
    assert llm.generate([]) == []


def test_waiting_prompts_of_a_list_are_not_prefilled(llm):
    results = llm.generate([STORY] * 4, max_tokens=6, batch_size=1)
    queued = [result.statistics.queued_seconds for result in results]
    assert queued == sorted(queued)
    for before, result in pairwise(results):
        read = before.statistics.queued_seconds + before.statistics.time_to_first_token
        assert result.statistics.queued_seconds >= read
    assert llm.generate(STORY, max_tokens=2).statistics.queued_seconds == 0


def test_sampling_in_a_list_draws_as_alone():
    llm = LLM("tiny", dtype="float32")  # kernels for several rows add up in another order
    together = llm.generate(PROMPTS[:3], sampling=HOT)
    assert [comparable(result) for result in together] == [
        comparable(llm.generate(p, sampling=HOT)) for p in PROMPTS[:3]
    ]
    assert len({result.text for result in llm.generate([STORY] * 4, sampling=HOT)}) == 1


def test_without_a_seed_answers_differ(llm):
    sampling = Sampling(temp=3.0, max_tokens=12)
    texts = [result.text for result in llm.generate([STORY] * 4, sampling=sampling)]
    texts += [llm.generate(STORY, sampling=sampling).text for _ in range(4)]
    assert len(set(texts)) == 8


def test_a_stream_gives_the_answer_in_pieces_and_the_result_at_the_end(llm):
    stream = llm.stream(MESSAGES)
    first = next(stream)
    assert stream.result.finish_reason is None
    assert stream.result.text == first
    assert first + "".join(stream) == llm.chat(MESSAGES).text
    assert comparable(stream.result) == comparable(llm.chat(MESSAGES))
    assert "".join(llm.stream(STORY, max_tokens=5)) == llm.generate(STORY, max_tokens=5).text


def test_a_stream_that_is_closed_ends(llm):
    stream = llm.stream(STORY)
    first = next(stream)
    stream.close()
    assert list(stream) == []
    assert stream.result.text == first


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a list"])
def test_a_stop_string_ends_an_answer_before_it(llm, many):
    whole = llm.generate(STORY, max_tokens=12)
    word = whole.text.split()[3]
    for options in ({"stop": word}, {"stop": ["@", word]}, {"sampling": Sampling(stop=word)}):
        found = (
            llm.generate([STORY], max_tokens=12, **options)[0]
            if many
            else llm.generate(STORY, max_tokens=12, **options)
        )
        assert found.text == whole.text[: whole.text.index(word)]
        assert found.finish_reason == "stop"
        assert found.token_ids == whole.token_ids[: len(found.token_ids)]


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a list"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(repetition_penalty=2.0), HOT], ids=str)
def test_logprobs_are_those_of_the_model(llm, many, sampling):
    """Compared with one pass over the whole text, in the precision of the activations."""
    answers = llm.generate([STORY, "The fox"], sampling=sampling, max_tokens=6, logprobs=3)
    result = answers[0] if many else llm.generate(STORY, sampling=sampling, max_tokens=6, logprobs=3)
    ids = llm.tokenizer.encode(STORY, add_special_tokens=False)
    logits = llm.model(mx.array([[*ids, *result.token_ids]]), 0, llm.model.create_kv_cache())[0]
    scores = logits[len(ids) - 1 : -1].astype(mx.float32)
    wanted = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
    assert result.logprobs is not None
    assert tuple(entry.token_id for entry in result.logprobs) == result.token_ids
    for entry, row in zip(result.logprobs, wanted, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token_id].item(), abs=0.2)
        assert [p for _, p in entry.top] == sorted((p for _, p in entry.top), reverse=True)
        assert [p for _, p in entry.top] == pytest.approx([row[i].item() for i, _ in entry.top], abs=0.2)
        assert entry.top[0][1] == pytest.approx(row.max().item(), abs=0.2)
    if sampling == Sampling():
        assert all(entry.top[0][1] == entry.logprob for entry in result.logprobs)


def test_logprobs_of_the_chosen_token_alone(llm):
    result = llm.generate(STORY, max_tokens=2, logprobs=0)
    assert result.logprobs is not None
    assert [entry.top for entry in result.logprobs] == [(), ()]
    assert all(entry.logprob < 0 for entry in result.logprobs)


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a list"])
def test_an_answer_ends_with_the_given_context(many):
    llm = LLM("tiny", context=10)
    length = len(llm.tokenizer.encode(STORY, add_special_tokens=False))
    result = llm.generate([STORY])[0] if many else llm.generate(STORY)
    assert (len(result.token_ids), result.finish_reason) == (10 - length, "length")
    with refused("prompts" if not many else r"prompts\[0\]", function=r"LLM\.generate"):
        llm.generate(["word " * 12] if many else "word " * 12)


def test_the_dtype_is_the_best_of_the_device_or_the_given_one(llm):
    assert llm.model.precision == activation_dtype("", "auto", llm.device)
    for dtype in ("float32", mx.float32):
        other = LLM("tiny", dtype=dtype)
        assert (other.dtype, other.model.precision) == ("float32", mx.float32)


def test_a_draft_model_does_not_change_a_greedy_answer(llm):
    drafted = LLM("tiny", draft_model="tiny")
    assert drafted.chat(QUESTION).text == llm.chat(QUESTION).text
    assert [result.text for result in drafted.generate(PROMPTS[:2], max_tokens=5)] == [
        result.text for result in llm.generate(PROMPTS[:2], max_tokens=5)
    ]


def test_a_draft_model_combines_with_penalties_log_probabilities_and_grammars():
    """In float32: in bfloat16 a step of several tokens may round a close choice differently."""
    alone, drafted = LLM("tiny", dtype="float32"), LLM("tiny", dtype="float32", draft_model="tiny")
    for options in ({"logprobs": 2}, {"sampling": Sampling(repetition_penalty=1.2)}):
        expected, found = (each.generate(STORY, max_tokens=12, **options) for each in (alone, drafted))
        assert (found.text, found.token_ids) == (expected.text, expected.token_ids)
        assert (found.logprobs is None) == ("logprobs" not in options)
    form = Grammar.regex("[a-z]{5}")
    expected, found = (each.chat(QUESTION, response_format=form).text for each in (alone, drafted))
    assert found == expected


def test_a_model_from_a_folder_and_one_of_random_weights(tmp_path, llm):
    folder = shutil.copytree(EMBEDDED, tmp_path / "copy")
    assert comparable(LLM(folder, offline=True).chat(QUESTION)) == comparable(llm.chat(QUESTION))
    with pytest.raises(LoadError, match="is neither a folder nor a known name"):
        LLM("no such model", offline=True)


@pytest.mark.parametrize("template", [None, "{% for m in messages %}{{ m.content }}{% endfor %}"])
def test_messages_may_be_any_mappings(tmp_path, llm, template):
    """Also where the template runs in another process."""
    if template is not None:
        folder = shutil.copytree(EMBEDDED, tmp_path / "copy")
        (folder / "chat_template.jinja").write_text(template)
        llm = LLM(folder)
    frozen = [MappingProxyType(message) for message in MESSAGES]
    assert comparable(llm.chat(frozen, max_tokens=3)) == comparable(llm.chat(MESSAGES, max_tokens=3))
    if template is not None:
        with pytest.raises(ArgumentTypeError, match=r"^LLM\.chat: messages: got an object inside, expected"):
            llm.chat([{**MESSAGES[0], "when": object()}])


def test_thinking_writes_another_prompt_where_the_template_can(tmp_path, llm):
    """A template that writes the value of the switch."""
    folder = shutil.copytree(EMBEDDED, tmp_path / "thinks")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ ' 1' if enable_thinking else ' 2 3' }}"
    (folder / "chat_template.jinja").write_text(template)
    other = LLM(folder)
    results = [other.chat("a", enable_thinking=thinks, max_tokens=1) for thinks in (True, False)]
    assert [result.statistics.prompt_tokens for result in results] == [
        len(llm.tokenizer.encode(text, add_special_tokens=False)) for text in ("a 1", "a 2 3")
    ]


def test_the_sampling_may_be_given_by_its_place(llm):
    assert comparable(llm.generate(STORY, HOT)) == comparable(llm.generate(STORY, sampling=HOT))
    assert comparable(llm.generate([STORY], HOT)[0]) == comparable(llm.generate([STORY], sampling=HOT)[0])
    assert comparable(llm.chat(QUESTION, HOT)) == comparable(llm.chat(QUESTION, sampling=HOT))
    assert "".join(llm.stream(STORY, HOT)) == llm.generate(STORY, sampling=HOT).text


def test_an_empty_stop_replaces_that_of_the_sampling(llm):
    sampling = Sampling(stop="e", max_tokens=8)
    assert "e" not in llm.generate(STORY, sampling).text
    assert comparable(llm.generate(STORY, sampling, stop=None)) == comparable(llm.generate(STORY, sampling))
    assert comparable(llm.generate(STORY, sampling, stop=[])) == comparable(llm.generate(STORY, max_tokens=8))


def test_the_default_device_of_mlx_stays(llm):
    device = mx.default_device()
    llm.generate(STORY, max_tokens=2)
    assert mx.default_device() == device


def test_the_course_reaches_the_same_tokens(llm):
    """`load` and `dispatch_model` by hand give the model that `LLM` has."""
    checkpoint = tiny_llm.load("tiny")
    model = tiny_llm.dispatch_model(
        "tiny", checkpoint.mlx_model, week=2, enable_flash_attn=True, dtype=llm.model.precision
    )
    ids = mx.array([checkpoint.tokenizer.encode(STORY, add_special_tokens=False)])
    by_hand, ours = (next_logits(each, ids, 0, each.create_kv_cache()) for each in (model, llm.model))
    assert mx.array_equal(by_hand, ours).item()
