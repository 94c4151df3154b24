"""The embedded model gives the same greedy tokens on every instruction set, up to rounding."""

import mlx.core as mx
import pytest

from ..support.models.logits import TOLERANCE, assert_logits, clear_steps
from ..support.native import available_isas
from ..support.processes.child import run_python

# An instruction set is chosen once a process: each has its own, which answers every question in every type.
PROGRAM = """
import sys
import mlx.core as mx
from tiny_llm.generation.text import end_tokens
from tiny_llm.generation.tokens import TokenSampler, cached_tokens
from tiny_llm.runtime.extension import load_extension
from tiny_llm.loading import load
from tiny_llm.models import dispatch_model

path, limit, *questions = sys.argv[1:]
mx.set_default_device(mx.cpu)
tiny = load("tiny", offline=True)
ends = end_tokens(tiny.tokenizer)
results = {}
for dtype in (mx.float32, mx.bfloat16):
    model = dispatch_model("tiny", tiny.mlx_model, 2, dtype=dtype, enable_flash_attn=True)
    for question in questions:
        chat = [{"role": "user", "content": question}]
        prompt = tiny.tokenizer.encode(tiny.tokenizer.apply_chat_template(chat, add_generation_prompt=True))
        tokens, logits = [], []

        def recorded(_, scores):
            logits.append(scores)
            return scores

        sampler = TokenSampler(prompt, None, [recorded])
        for token in cached_tokens(model, prompt, sampler, int(limit), prefill_step=512):
            tokens.append(token)
            if token in ends:
                break
        results[f"{question} {dtype} tokens"] = mx.array(tokens)
        results[f"{question} {dtype} logits"] = mx.concatenate(logits[: len(tokens)])
mx.save_safetensors(path, results)
print(load_extension().cpu_isa())
"""
QUESTIONS = ["What is 7 + 5?", "What is the opposite of hot?", "Tell me a story about a cat."]
LIMIT = 24
SLOWEST = "scalar"  # plain C++, which every machine has, is what the others are compared with
RUNS = [(isa, dtype) for isa in available_isas() for dtype in (mx.float32, mx.bfloat16)]
RUNS.remove((SLOWEST, mx.float32))

each_run = pytest.mark.parametrize(("isa", "dtype"), RUNS, ids=str)
each_question = pytest.mark.parametrize("question", QUESTIONS)


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """From an instruction set, a type and a question to tokens [T] and their logits [T, V]."""
    answers = {}

    def run(isa):
        path = tmp_path_factory.mktemp(isa) / "answers.safetensors"
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("TINY_LLM_CPU_ISA", isa)
            result = run_python("-c", PROGRAM, str(path), str(LIMIT), *QUESTIONS)
        assert result.stdout.split() == [isa], result.stderr
        return mx.load(str(path))

    def look_up(isa, dtype, question):
        if isa not in answers:
            answers[isa] = run(isa)
        return [answers[isa][f"{question} {dtype} {what}"] for what in ("tokens", "logits")]

    return look_up


@each_question
@each_run
def test_tokens_are_the_same_where_the_margin_allows(answer, isa, dtype, question):
    expected, logits = answer(SLOWEST, mx.float32, question)
    tokens, _ = answer(isa, dtype, question)
    steps = clear_steps(logits, dtype)
    assert steps > 0.75 * len(expected), "too few steps with a clear choice"
    assert tokens[:steps].tolist() == expected[:steps].tolist()


@each_question
@each_run
def test_scores_lie_as_near_as_the_margin_presumes(answer, isa, dtype, question):
    _, expected = answer(SLOWEST, mx.float32, question)
    _, logits = answer(isa, dtype, question)
    steps = clear_steps(expected, dtype)
    assert logits.dtype == dtype
    assert_logits(logits[:steps], expected[:steps], TOLERANCE[mx.float32] + TOLERANCE[dtype])
