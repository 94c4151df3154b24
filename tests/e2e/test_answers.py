"""The embedded model gives the same answers with every loader and every loop."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import pytest

from tiny_llm.batch import batch_generate
from tiny_llm.generate import simple_generate, simple_generate_with_kv_cache, stream_generate
from tiny_llm.loading import load
from tiny_llm.models import dispatch_model
from tiny_llm.sampling.params import Sampling

from ..support.models.logits import clear_steps
from ..support.page_pool import assert_consistent

pytestmark = pytest.mark.usefixtures("on_the_cpu")

# Every way to run it: the week it is from, and the options of that week.
LOADERS = {
    "without a cache": (1, {}),
    "grouped attention": (2, {}),
    "flash attention": (2, {"enable_flash_attn": True}),
    "pages": (3, {}),
    "small pages": (3, {"page_size": 5}),
}
CACHED = [name for name in LOADERS if name != "without a cache"]
DTYPES = pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
CAT = "Tell me a story about a cat."
# The fixtures make sure that at every step one token leads clearly, so that no rounding can choose another.
QUESTIONS = {
    "What is 7 + 5?": "7 + 5 = 12.",
    "What is the opposite of hot?": "The opposite of hot is cold.",
    CAT: "There once was a cat called",
}
LIMIT = 30


@pytest.fixture(scope="module")
def tiny():
    return load("tiny", offline=True)


@pytest.fixture(scope="module")
def models(tiny):
    """Each model is built once for all tests."""
    built = {}

    def model(how, dtype=mx.float32):
        week, options = LOADERS[how]
        if (how, dtype) not in built:
            built[how, dtype] = dispatch_model("tiny", tiny.mlx_model, week, dtype=dtype, **options)
        return built[how, dtype]

    return model


@pytest.fixture(scope="module")
def prompt_of(tiny):
    """A question, or several turns, in the form of a chat."""

    def prompt(*turns):
        roles = itertools.cycle(["user", "assistant"])
        messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
        return tiny.tokenizer.apply_chat_template(messages, add_generation_prompt=True)

    return prompt


@pytest.fixture(scope="module")
def clear_answer(tiny, models):
    """The answer of flash attention in float32 to a prompt; every other run must give the same.

    Runs round differently: some in 16 bits, and one token at a time unlike five, or a batch.
    """

    def answer(prompt):
        steps = []

        def recorded(_, logits):
            steps.append(logits)
            return logits

        model = models("flash attention")
        generation = stream_generate(model, tiny.tokenizer, prompt, processors=[recorded], max_tokens=LIMIT)
        text = "".join(generation)
        logits = mx.concatenate(steps[: generation.statistics.generated_tokens])
        clear = clear_steps(logits, mx.bfloat16)
        assert clear == len(logits), f"{text!r}: rounding may choose token {clear}; ask something else"
        return text

    return answer


@pytest.fixture(scope="module")
def answers(clear_answer, prompt_of):
    return {question: clear_answer(prompt_of(question)) for question in QUESTIONS}


@pytest.fixture(scope="module")
def long_prompt(clear_answer, prompt_of):
    """A chat of some turns, which many chunks and pages share."""
    story = "There once was a dog called Otto. Otto had a red hat, and it was too small. " * 6
    prompt = prompt_of("Tell me a story about a dog.", story.strip(), "What is 7 + 5?")
    assert clear_answer(prompt) == QUESTIONS["What is 7 + 5?"]
    return prompt


def test_the_answers_are_right(answers):
    assert {question: answers[question][: len(text)] for question, text in QUESTIONS.items()} == QUESTIONS


@DTYPES
@pytest.mark.parametrize("how", LOADERS)
def test_every_loader_gives_the_same_text(tiny, models, prompt_of, answers, how, dtype):
    model = models(how, dtype)
    # Without a cache each token costs as much as the whole text before it.
    for question in QUESTIONS if how in CACHED else ["What is 7 + 5?"]:
        generation = stream_generate(model, tiny.tokenizer, prompt_of(question), max_tokens=LIMIT)
        assert "".join(generation) == answers[question]


def test_pieces_join_to_the_text_of_the_tokens(tiny, models, prompt_of):
    model, tokenizer = models("flash attention"), tiny.tokenizer
    prompt = prompt_of("What is a KV cache?")
    generation = stream_generate(model, tokenizer, prompt)
    pieces = list(generation)
    assert generation.finish_reason == "stop"
    assert "" not in pieces
    assert len(pieces) == generation.statistics.generated_tokens - 1  # the last token ended it
    whole = "".join(pieces)
    assert tokenizer.decode(tokenizer.encode(whole, add_special_tokens=False)) == whole
    assert simple_generate_with_kv_cache(model, tokenizer, prompt) == whole


def test_the_loops_of_the_course_give_the_same_text(tiny, models, prompt_of, answers, capsys):
    question = "What is the opposite of hot?"
    again = simple_generate(models("without a cache"), tiny.tokenizer, prompt_of(question), None)
    assert again == answers[question] == capsys.readouterr().out


@pytest.mark.parametrize("step", [1, 50, 512])
@pytest.mark.parametrize("how", CACHED)
def test_a_prompt_in_chunks_is_read_as_a_whole(tiny, models, long_prompt, how, step):
    assert len(tiny.tokenizer.encode(long_prompt)) > 150
    generation = stream_generate(
        models(how), tiny.tokenizer, long_prompt, prefill_step=step, max_tokens=LIMIT
    )
    assert "".join(generation) == QUESTIONS["What is 7 + 5?"]


@pytest.mark.parametrize("how", CACHED)
def test_a_batch_answers_each_as_if_alone(tiny, models, prompt_of, answers, long_prompt, how):
    prompts = [long_prompt, *map(prompt_of, QUESTIONS)]
    sizes = [len(tiny.tokenizer.encode(prompt)) for prompt in prompts]
    longest = max(sizes) + LIMIT
    results = dict(batch_generate(models(how), tiny.tokenizer, prompts, longest, 3, prefill_step=64))
    assert results[0] == QUESTIONS["What is 7 + 5?"]
    for index, question in enumerate(QUESTIONS, start=1):
        assert results[index].startswith(answers[question])


@pytest.mark.parametrize("how", CACHED)
def test_a_model_that_drafts_for_itself_agrees_with_itself(tiny, models, prompt_of, answers, how):
    """Every draft is accepted: five tokens per pass of the model."""
    model, prompt = models(how), prompt_of(CAT)
    generation = stream_generate(model, tiny.tokenizer, prompt, draft_model=model, max_tokens=LIMIT)
    assert "".join(generation) == answers[CAT]


@pytest.mark.parametrize("how", CACHED)
def test_a_bad_draft_does_not_change_the_answer(tiny, models, prompt_of, answers, how):
    """The same model without its last layers: most of its drafts are rejected."""
    kept = SimpleNamespace(**vars(tiny.mlx_model.model) | {"layers": tiny.mlx_model.model.layers[:6]})
    shorter = SimpleNamespace(args=replace(tiny.config, num_hidden_layers=6), model=kept)
    week, options = LOADERS[how]
    draft = dispatch_model("tiny", shorter, week, dtype=mx.float32, **options)
    generation = stream_generate(
        models(how), tiny.tokenizer, prompt_of(CAT), draft_model=draft, max_tokens=LIMIT
    )
    assert "".join(generation) == answers[CAT]


def test_a_seed_repeats_an_answer_and_another_one_does_not(tiny, models, prompt_of):
    def answer(seed, **options):
        sampling = Sampling(temp=1.0, top_p=0.95, top_k=50, min_p=0.01, seed=seed)
        prompt = prompt_of(CAT)
        return "".join(
            stream_generate(
                models("flash attention"), tiny.tokenizer, prompt, sampling=sampling, max_tokens=20
            )
        )

    assert answer(1) == answer(1) != answer(2)


def test_a_stop_string_ends_a_story(tiny, models, prompt_of):
    generation = stream_generate(models("pages"), tiny.tokenizer, prompt_of(CAT), stop=["was", " cat"])
    assert "".join(generation) == "There once "
    assert generation.finish_reason == "stop"


def test_all_pages_are_free_after_all_answers(models):
    for how in ("pages", "small pages"):
        pool = models(how).page_pool
        assert_consistent(pool)
        assert pool.num_free_pages == pool.num_pages


def test_a_batch_takes_a_list_of_prompts(tiny, models):
    with pytest.raises(TypeError, match=r"^batch_generate: prompts: got a str, expected a list of str"):
        batch_generate(models("flash attention"), tiny.tokenizer, "hi")
