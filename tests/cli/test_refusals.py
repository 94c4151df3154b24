"""A refusal is one line on standard error and an exit code; nothing is printed on standard output."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from tiny_llm.cli import COMMANDS, main
from tiny_llm.cli.exit_codes import FAILED, REFUSED
from tiny_llm.cli.loaders import LOADERS
from tiny_llm.loading.weights import memory
from tiny_llm.runtime.device import why_no_gpu
from tiny_llm.runtime.mlx_packages import installed_libraries
from tiny_llm_tools.cli import demo

from .conftest import Run

FULL, CACHED, PAGED = LOADERS

# command, flags, and words of the sentence
USAGE = [
    ("generate", ["--max-tokens", "0"], "--max-tokens: got '0'"),
    ("generate", ["--max-tokens", "many"], "--max-tokens: got 'many'"),
    ("generate", ["--prompt", " "], "--prompt: got an empty text"),
    (
        "generate",
        ["--prompt", "word " * 3000],
        "--prompt: got 3021 tokens, expected fewer than",
    ),
    ("generate", ["--model", ""], "--model: got an empty text"),
    ("generate", ["--stop", ""], "--stop: got an empty text"),
    ("generate", ["--prompt", "half \udcff"], "expected text in the encoding of this terminal"),
    ("batch", ["--system", "half \udcff"], "expected text in the encoding of this terminal"),
    ("generate", ["--device", "tpu"], "--device: invalid choice: 'tpu'"),
    ("generate", ["--dtype", "int8"], "--dtype: invalid choice: 'int8'"),
    ("generate", ["--loader", "another"], "--loader: invalid choice: 'another'"),
    ("generate", ["--solution", "ref"], "got ref, expected tiny_llm"),
    ("generate", ["--solution", "tiny_llm_ref"], "got tiny_llm_ref, expected tiny_llm"),
    ("generate", ["--solution", "torch"], "--solution: got torch, expected tiny_llm"),
    (
        "generate",
        ["--enable-thinking"],
        "--enable-thinking: got True, expected False: the chat template of tiny",
    ),
    ("generate", ["--max"], "--max: unknown option"),
    ("generate", ["--seed", "5", "words"], "words: unexpected argument"),
    ("generate", ["What is this?"], "What is this?: unexpected argument; give the question by --prompt"),
    ("visualize", ["words"], "words: unexpected argument; give the question by --prompt"),
    ("chat", ["words"], "words: unexpected argument; see --help"),
    ("generate", ["--sampler-temp", "-1"], "--sampler-temp: got '-1'"),
    ("generate", ["--sampler-temp", "nan"], "--sampler-temp: got 'nan'"),
    ("generate", ["--sampler-temp", "1", "--sampler-top-p", "0"], "--sampler-top-p: got '0'"),
    ("generate", ["--sampler-temp", "1", "--sampler-top-p", "1.5"], "--sampler-top-p: got '1.5'"),
    ("generate", ["--sampler-temp", "1", "--sampler-top-k", "0"], "--sampler-top-k: got '0'"),
    ("generate", ["--sampler-temp", "1", "--sampler-min-p", "2"], "--sampler-min-p: got '2'"),
    ("generate", ["--sampler-temp", "1", "--seed", str(2**63)], "--seed: got '9223372036854775808'"),
    ("generate", ["--repetition-penalty", "0"], "--repetition-penalty: got '0'"),
    (
        "generate",
        ["--presence-penalty", "2.5"],
        "--presence-penalty: got '2.5', expected a number from -2 to 2",
    ),
    ("generate", ["--frequency-penalty", "nan"], "--frequency-penalty: got 'nan'"),
    ("generate", ["--min-tokens", "9", "--max-tokens", "8"], "--min-tokens: got 9, expected a whole number"),
    (
        "generate",
        ["--loader", CACHED, "--draft-model", "tiny", "--min-tokens", "2"],
        "--min-tokens: cannot be combined with --loader and --draft",
    ),
    ("generate", ["--solution", "mlx", "--presence-penalty", "1"], "--presence-penalty: cannot be combined"),
    ("generate", ["--regex", "a", "--json-schema", "b"], "--json-schema: not allowed with argument --regex"),
    ("generate", ["--regex", "("], "--regex: got a regex that does not compile"),
    ("generate", ["--regex", "a", "--ignore-eos"], "--regex: cannot be combined with --ignore-eos"),
    ("generate", ["--regex", "a", "--loader", CACHED], "--regex: cannot be combined with --loader"),
    ("generate", ["--json-schema", "/nowhere/x"], "--json-schema: /nowhere/x: No such file"),
    ("generate", ["--json-schema", __file__], "--json-schema: got a text that is not JSON"),
    ("generate", ["--sampler-top-k", "5"], "--sampler-top-k: needs a --sampler-temp above 0"),
    ("generate", ["--sampler-top-p", "0.5"], "--sampler-top-p: needs a --sampler-temp above 0"),
    ("generate", ["--sampler-min-p", "0.5"], "--sampler-min-p: needs a --sampler-temp above 0"),
    ("generate", ["--seed", "5"], "--seed: needs a --sampler-temp above 0"),
    ("generate", ["--loader", FULL, "--enable-flash-attn"], f"--enable-flash-attn: {FULL} has one kind"),
    ("generate", ["--loader", FULL, "--no-enable-flash-attn"], "--no-enable-flash-attn"),
    ("generate", ["--loader", PAGED, "--enable-flash-attn"], f"the flag is for {CACHED}"),
    ("generate", ["--loader", FULL, "--draft-model", "tiny"], f"{CACHED} or {PAGED}"),
    ("generate", ["--solution", "mlx", "--loader", CACHED], "--loader: has no effect with --solution mlx"),
    ("generate", ["--solution", "mlx", "--enable-flash-attn"], "--enable-flash-attn: has no effect"),
    ("generate", ["--solution", "mlx", "--draft-model", "tiny"], "--draft-model: has no effect"),
    ("generate", ["--solution", "mlx", "--threads", "1"], "--threads: has no effect with --solution mlx"),
    ("chat", ["--enable-thinking"], "--enable-thinking: got True, expected False: the chat template of tiny"),
    ("chat", ["--seed", "5"], "--seed: needs a --sampler-temp above 0"),
    ("batch", ["--batch-size", "0"], "--batch-size: got '0'"),
    ("batch", ["--prefill-step", "-1"], "--prefill-step: got '-1'"),
    ("batch", ["--max-seq-len", "5"], "--max-seq-len: question 1: got "),
    ("batch", ["--max-seq-len", "2049"], "--max-seq-len: got 2049, expected at most the context of 2048"),
    (
        "batch",
        ["--prefill-step", "999999"],
        "--prefill-step: got 999999, expected at most the context of 2048",
    ),
    ("chat", ["--max-tokens", "2048"], "--max-tokens: got 2048, expected fewer than the context of 2048"),
    ("chat", ["--system", "word " * 3000], "--system: got 3"),
    ("generate", ["--raw", "--system", "Be brief."], "--system: has no effect with --raw"),
    ("batch", ["--raw", "--enable-thinking"], "--enable-thinking: has no effect with --raw"),
    ("batch", ["--input", "/nowhere/x"], "--input: /nowhere/x cannot be read: No such file"),
    ("batch", ["--input", "/"], "--input: / cannot be read: Is a directory"),
    ("batch", ["--output", "/nowhere/x"], "--output: got '/nowhere/x', expected a file in a folder"),
    ("batch", ["--resume"], "--resume: needs --output, the file of an interrupted run"),
    ("batch", ["--solution", "mlx"], "only generate, chat and bench have mlx"),
    ("batch", ["--solution", "ref"], "got ref, expected tiny_llm"),
    ("bench", ["--num-seqs", "0"], "--num-seqs: got '0'"),
    ("bench", ["--min-input-len", "-2"], "--min-input-len: got '-2'"),
    ("bench", ["--max-output-len", "0"], "--max-output-len: got '0'"),
    ("bench", ["--warmup", "-1"], "--warmup: got '-1'"),
    ("bench", ["--min-input-len", "9", "--max-input-len", "8"], "--min-input-len: got 9"),
    ("bench", ["--min-output-len", "9", "--max-output-len", "8"], "--min-output-len: got 9"),
    (
        "bench",
        ["--model", "tiny", "--max-input-len", "2000"],
        "got 2256 tokens together, expected at most the context of 2048",
    ),
    (
        "bench",
        ["--compare", "--enable-flash-attn"],
        "--enable-flash-attn: --compare measures with and",
    ),
    (
        "bench",
        ["--compare", "--no-enable-flash-attn"],
        "--no-enable-flash-attn: --compare measures with and",
    ),
    ("bench", ["--solution", "mlx", "--no-enable-flash-attn"], "--no-enable-flash-attn: has no effect"),
    ("bench", ["--solution", "mlx", "--threads", "1"], "--threads: has no effect"),
    ("bench", ["--compare", "--loader", PAGED], f"{PAGED} has one kind of attention"),
    ("bench", ["--compare", "--solution", "mlx"], "--compare: measures tiny_llm"),
    ("visualize", ["--prompt", " "], "--prompt: got an empty text"),
    ("visualize", ["--layer", "-1"], "--layer: got '-1'"),
    (
        "visualize",
        ["--output", "/nowhere/x.html"],
        "--output: got '/nowhere/x.html', expected a file in a folder",
    ),
    ("visualize", ["--png", "/nowhere/x/y"], "--png: got '/nowhere/x/y', expected a folder, or a new one"),
    ("visualize", ["--raw", "--enable-thinking"], "--enable-thinking: has no effect with --raw"),
    ("bench", ["--json", "-"], "--json: got '-', expected a file"),
    ("bench", ["--json", "/nowhere/x.json"], "expected a file in a folder that exists"),
    ("bench", ["--json", "x" * 300], "--json: xxx"),
    ("bench", ["--json", "x.svg", "--plot", "./x.svg"], "--plot: got x.svg, expected a different file"),
    ("bench", ["--plot", "x.png"], "expected a name that ends in .svg"),
    ("demo", ["--heads", "3", "--kv-heads", "2"], "--kv-heads: got 2, expected a divisor"),
    ("demo", ["--tokens", "99999999"], "--tokens: got 99999999: plain attention would take"),
    ("demo", ["--heads", "100000000"], "--heads: got 100000000: plain attention would take"),
    (
        "demo",
        ["--tokens", "1", "--heads", "1000000000", "--head-dim", "256"],
        "--heads: got 1000000000: plain",
    ),
    ("demo", ["--head-dim", "300"], "--head-dim: got 300, expected at most 256"),
]


def test_max_tokens_beyond_the_context_are_refused(run: Run) -> None:
    prompt = run("generate", "--json", "--max-tokens", "1").record["prompt_tokens"]
    left = 2048 - prompt
    ended = run("generate", "--max-tokens", str(left + 1))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert f"--max-tokens: got {left + 1}, expected at most {left}: the context of 2048" in ended.err


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    USAGE,
    ids=[" ".join([command, *flags])[:50] for command, flags, _ in USAGE],
)
def test_contradictions_and_values_out_of_range_are_refused(
    run: Run, command: str, flags: list[str], words: str
) -> None:
    ended = run(command, *flags)
    assert (ended.code, ended.out) == (REFUSED, "")
    assert words in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("program: ")
    # The error names an argument that was given, or a flag whose default is refused.
    about = ended.err.removeprefix("program: ").split(":")[0]
    assert set(about.split(" and ")) & {
        *flags,
        "--prompt",
        "--model",
        "--enable-thinking",
        "--max-output-len",
    }


def test_the_error_names_the_flag_that_is_too_large(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "available_bytes", lambda: 10**9)
    for flags, named in (
        (["--heads", "100", "--tokens", "1024"], "--heads: got 100: plain attention would take 1.3 GB"),
        (["--heads", "16", "--tokens", "4096"], "--tokens: got 4096: plain"),
        (["--heads", "20", "--tokens", "2200"], "--heads: got 20 with --tokens 2200: plain"),
    ):
        ended = run("demo", *flags)
        assert (ended.code, ended.out) == (REFUSED, "")
        assert named in ended.err


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["generate", "--max"], "tiny-llm generate: --max: unknown option"),
        (["bench", "--nope"], "tiny-llm bench: --nope: unknown option"),
        (["bench", "x"], "tiny-llm bench: KIND: invalid choice: 'x'"),
        (["chat", "--seed"], "tiny-llm chat: --seed: expected one argument"),
        (["demo", "--heads", "0"], "tiny-llm demo: --heads: got '0'"),
        (["generate", "--seed", "5"], "tiny-llm generate: --seed: needs"),
        (["--nope"], "tiny-llm: --nope: unknown option"),
        (["export"], "tiny-llm export: "),
    ],
)
def test_every_error_begins_with_the_command(
    arguments: list[str], start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    assert code == REFUSED
    assert capsys.readouterr().err.startswith(start)


@pytest.mark.skipif(mx.is_available(mx.gpu), reason="MLX has a GPU here")
@pytest.mark.parametrize("command", ["generate", "chat", "batch", "bench"])
def test_a_device_that_is_not_there_is_refused(run: Run, command: str) -> None:
    ended = run(command, "--device", "gpu")
    assert (ended.code, ended.out) == (REFUSED, "")
    reason = why_no_gpu(installed_libraries())
    assert ended.err == f"program: --device: got gpu, expected cpu: {reason}\n"


@pytest.mark.parametrize("command", ["generate", "chat", "batch", "bench", "export", "visualize"])
def test_a_model_that_is_not_there_fails(run: Run, command: str, tmp_path: Path) -> None:
    target = [str(tmp_path / "out")] if command == "export" else []
    ended = run(command, "--model", "no such model", *target)
    assert (ended.code, ended.out) == (FAILED, "")
    assert ended.err.startswith("program: no such model: is neither a folder nor a known name")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["generate", "chat", "batch", "bench", "export", "visualize"])
def test_offline_forbids_the_network(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    target = [str(tmp_path / "out")] if command == "export" else []
    ended = run(command, "--model", "qwen2-0.5b", "--offline", *target)
    assert (ended.code, ended.out) == (FAILED, "")
    assert "offline mode is on" in ended.err


def test_a_folder_without_a_tokenizer_fails(run: Run, embedded_copy: Path) -> None:
    (embedded_copy / "tokenizer.json").unlink()
    ended = run("generate", "--model", str(embedded_copy))
    assert (ended.code, ended.out) == (FAILED, "")
    assert "tokenizer.json" in ended.err


def test_a_draft_model_of_another_vocabulary_is_refused(run: Run, embedded_copy: Path) -> None:
    tokenizer = embedded_copy / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    words = content["model"]["vocab"]
    first, second = list(words)[1000:1002]
    words[first], words[second] = words[second], words[first]
    tokenizer.write_text(json.dumps(content))
    ended = run("generate", "--draft-model", str(embedded_copy))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert "another vocabulary" in ended.err


def test_a_command_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["sing"])
    assert end.value.code == REFUSED
    printed = capsys.readouterr().err
    assert all(name in printed for name in COMMANDS)


def test_the_memory_of_dequantized_weights_is_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 40_000_000)
    assert run("generate", "--max-tokens", "1").code == 0
    ended = run("generate", "--max-tokens", "1", "--loader", FULL, "--dtype", "float32")
    assert ended.code == FAILED
    assert "memory" in ended.err
