"""`generate`: what is printed, and what each flag changes."""

from __future__ import annotations

import argparse
import io
import json
from types import SimpleNamespace

import mlx.core as mx
import pytest

from tiny_llm.cli import COMMANDS, add_options, generate
from tiny_llm.cli.arguments import SYSTEM
from tiny_llm.cli.build_backend import build_tiny_llm_backend
from tiny_llm.cli.loaders import DEFAULT_LOADER, LOADERS
from tiny_llm.cli.progress import ProgressBar
from tiny_llm.course.dispatch import MODELS
from tiny_llm.runtime import device

from .conftest import Run

FULL, CACHED, PAGED = LOADERS
SHORT = ("--max-tokens", "8")
CLEAR = "What is a token?"  # each token of the answer is chosen by more than the rounding of 16-bit types
WARM = ("--sampler-temp", "3", "--seed", "1")  # penalties of at most 2 decide close choices only
HOT = ("--sampler-temp", "20", "--seed", "1")  # at lower temperatures tiny always gives the same answer


def options(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    return parser.parse_args(flags)


def test_without_flags_the_embedded_model_answers_sensibly(run: Run) -> None:
    ended = run("generate")
    assert ended.code == 0
    assert "attention" in ended.out
    assert ended.out.endswith(".\n")
    assert "tiny, tiny_llm, flash attention" in ended.err
    for figure in ("prompt 23 tokens", "tok/s", "first token after", "peak memory"):
        assert figure in ended.err


def test_json_is_one_object_with_all_figures(run: Run) -> None:
    ended = run("generate", "--json", *SHORT)
    record = ended.record
    assert "tok/s" not in ended.err
    assert record["prompt"] == generate.QUESTION
    assert (record["prompt_tokens"], record["generated_tokens"]) == (23, 8)
    assert record["finish_reason"] == "length"
    assert record["flash_attention"] is True
    for figure in (
        "time_to_first_token",
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
        "peak_memory_bytes",
    ):
        assert record[figure] > 0
    assert run("generate", *SHORT).out == record["text"] + "\n"


# Flags, the fields of the JSON object that must change, and what else is given on both sides.
ACTING = {
    "--prompt": (("--prompt", "Who are you?"), ("prompt", "text"), SHORT),
    "--system": (("--system", ""), ("prompt_tokens",), SHORT),
    "--raw": (("--raw",), ("prompt_tokens", "text"), SHORT),
    "--max-tokens": (("--max-tokens", "3"), ("text", "generated_tokens"), ()),
    "--stop": (("--stop", "tiles", "--stop", "exact"), ("text", "finish_reason"), SHORT),
    "--repetition-penalty": (("--repetition-penalty", "3"), ("text",), ("--max-tokens", "30")),
    "--presence-penalty": (("--presence-penalty", "2"), ("text",), (*WARM, "--max-tokens", "30")),
    "--frequency-penalty": (("--frequency-penalty", "2"), ("text",), (*WARM, "--max-tokens", "30")),
    "--min-tokens": (("--min-tokens", "40"), ("generated_tokens",), ("--max-tokens", "40")),
    "--ignore-eos": (("--ignore-eos",), ("finish_reason", "generated_tokens"), ("--max-tokens", "40")),
    "--regex": (("--regex", "(yes|no)"), ("text", "finish_reason"), SHORT),
    "--sampler-temp": (("--sampler-temp", "3", "--seed", "0"), ("text",), SHORT),
    "--seed": (("--seed", "2"), ("text",), (*HOT[:2], "--seed", "1")),
    "--sampler-top-k": (("--sampler-top-k", "1"), ("text",), HOT),
    "--sampler-top-p": (("--sampler-top-p", "0.01"), ("text",), HOT),
    "--sampler-min-p": (("--sampler-min-p", "1"), ("text",), HOT),
}


@pytest.mark.parametrize("flag", ACTING)
def test_a_flag_changes_the_answer(run: Run, flag: str) -> None:
    flags, changed, given = ACTING[flag]
    limit = () if "--max-tokens" in (flag, *given) else SHORT
    before = run("generate", "--json", *limit, *given).record
    after = run("generate", "--json", *limit, *given, *flags).record
    for field in changed:
        assert before[field] != after[field]


@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_applies_the_sampler(run: Run, loader: str) -> None:
    def text(*flags: str) -> str:
        return run("generate", "--json", "--loader", loader, "--max-tokens", "3", *flags).record["text"]

    greedy, random = text(), text(*HOT)
    assert greedy != random
    for flag in ("--sampler-top-k", "--sampler-top-p", "--sampler-min-p"):
        assert text(*HOT, *ACTING[flag][0]) == greedy, flag


def test_a_seed_repeats_the_answer(run: Run) -> None:
    texts = [run("generate", "--json", *HOT, *SHORT).record["text"] for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("loader", LOADERS)
def test_the_loader_decides_which_class_answers(loader: str) -> None:
    backend = build_tiny_llm_backend(options("--loader", loader), ProgressBar())
    assert type(backend.model) is MODELS["qwen2"][LOADERS[loader].week]
    assert backend.description["loader"] == loader


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((), True), (("--enable-flash-attn",), True), (("--no-enable-flash-attn",), False)],
)
def test_the_flash_switch_has_three_states(flags: tuple[str, ...], expected: bool) -> None:
    backend = build_tiny_llm_backend(options(*flags), ProgressBar())
    assert backend.model.layers_inner[0].self_attn.use_flash_attention is expected
    assert backend.description["flash_attention"] is expected


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"])
def test_the_default_type_is_one_that_the_cpu_multiplies(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "load_extension", lambda: SimpleNamespace(cpu_isa=lambda: isa))
    expected = mx.bfloat16 if isa in ("avx512bf16", "amx") else mx.float32
    assert device.activation_dtype("--dtype", "auto", "cpu") == expected


def test_the_peak_memory_grows_with_the_prompt(run: Run) -> None:
    peaks = []
    for words in (5, 500):
        mx.reset_peak_memory()
        record = run("generate", "--json", "--prompt", "word " * words, "--max-tokens", "1").record
        peaks.append(record["peak_memory_bytes"])
        assert peaks[-1] == mx.get_peak_memory()
    assert peaks[0] < peaks[1]


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_the_dtype_is_that_of_the_activations(name: str) -> None:
    backend = build_tiny_llm_backend(options("--dtype", name), ProgressBar())
    assert backend.model.precision == getattr(mx, name)
    assert backend.description["dtype"] == name


def test_the_device_can_be_named(run: Run) -> None:
    assert run("generate", "--device", "cpu", "--json", *SHORT).record["device"] == "cpu"


def test_a_draft_model_halves_the_calls_of_the_large_one(run: Run) -> None:
    calls = {}
    for flags in ((), ("--draft-model", "tiny")):
        wanted = options("--loader", DEFAULT_LOADER, *flags)
        backend = build_tiny_llm_backend(wanted, ProgressBar())
        backend.model = counted = Counted(backend.model)
        prompt = backend.render(generate.build_messages(SYSTEM, [], CLEAR), False)
        sampling = generate.read_sampling(wanted)
        text = "".join(backend.generate(prompt, sampling, ProgressBar()))
        calls[text] = [*calls.get(text, []), counted.calls]
    ((alone, drafted),) = calls.values()  # one text
    assert drafted < alone / 2


class Counted:
    """A model, and how often it ran."""

    def __init__(self, model: object):
        self._model = model
        self.calls = 0

    def __call__(self, *arguments: object) -> mx.array:
        self.calls += 1
        return self._model(*arguments)

    def next_logits(self, *arguments: object) -> mx.array:
        self.calls += 1
        return self._model.next_logits(*arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)


def test_a_drafted_answer_can_be_sampled(run: Run) -> None:
    drawn = [
        run("generate", "--json", "--draft-model", "tiny", *HOT[:2], "--seed", seed, *SHORT).record["text"]
        for seed in "112"
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_answer_is_valid_by_the_schema_of_a_file(run: Run, tmp_path) -> None:
    file = tmp_path / "schema.json"
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    file.write_text(json.dumps(schema | {"additionalProperties": False}))
    record = run("generate", "--json", "--json-schema", str(file)).record
    assert type(json.loads(record["text"])["sure"]) is bool
    assert record["finish_reason"] == "stop"


def test_the_prompt_may_come_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Who are you?\n"))
    assert run("generate", "--json", "--prompt", "-", *SHORT).record["prompt"] == "Who are you?"


def test_a_folder_is_a_model_and_thinking_needs_a_template_that_supports_it(run: Run, embedded_copy) -> None:
    settings = embedded_copy / "tokenizer_config.json"
    content = json.loads(settings.read_text())
    content["chat_template"] += "{% if enable_thinking %}Let us think. {% endif %}"
    settings.write_text(json.dumps(content))
    plain, thinking = (
        run("generate", "--json", "--model", str(embedded_copy), *SHORT, *flags).record
        for flags in ((), ("--enable-thinking",))
    )
    assert plain["model"] == str(embedded_copy)
    assert thinking["prompt_tokens"] > plain["prompt_tokens"]


def test_every_flag_has_a_test() -> None:
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    flags = {action.option_strings[0] for action in parser._actions} - {"-h"}
    elsewhere = {
        "--json",
        "--model",
        "--offline",  # test_refusals.py
        "--solution",  # test_mlx_lm_backend.py
        "--loader",
        "--enable-flash-attn",
        "--device",
        "--dtype",
        "--threads",  # test_threads.py
        "--enable-thinking",
        "--draft-model",
        "--json-schema",
        "--tensor-parallel",  # tests/distributed
        "--pipeline-parallel",
        "--hostfile",
    }
    assert flags == set(ACTING) | elsewhere


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_flag(run: Run, name: str) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, name)
    assert all(action.help for action in parser._actions)
    ended = run(name, "--help")
    assert (ended.code, ended.err) == (0, "")
