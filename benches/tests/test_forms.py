"""`bench flashtile functions` and `layers`: FlashTile's options, CSV, JSON and plots."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import mlx.core as mx
import pytest

from benches import flashtile
from benches.cases.flashtile import Case
from benches.contestants import flashtile as contestants
from benches.harness.forms import functions, layers
from benches.harness.forms.layers import kv_heads_of
from tiny_llm_tools.profile import Peaks

COLUMNS = (
    "name,batch_size,seq_len,num_heads,head_dim,causal,latency_ms,throughput_tflops,memory_bandwidth_tb,"
    "memory_utilization_pct,compute_utilization_pct,vs_baseline_speedup"
)
SMALL = Case("module", "float32", 32, causal=True, batch=2, embed_dim=32, heads=4, kv_heads=1)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def test_functions_print_the_columns_of_flashtile(capsys) -> None:
    arguments = ["--seq-lengths", "16", "--implementations", "naive", "flash_v2", "sdpa"]
    arguments += ["--output", "csv", "--warmup", "0", "--iters", "2"]
    assert flashtile.main(["functions", *arguments]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == COLUMNS
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [(line["name"], line["seq_len"]) for line in lines] == [
        ("naive", "16"), ("flash_v2", "16"), ("sdpa", "16")
    ]  # fmt: skip
    assert {(x["batch_size"], x["num_heads"], x["head_dim"], x["causal"]) for x in lines} == {
        ("2", "8", "64", "True")
    }
    for line in lines:
        speedup = float(lines[0]["latency_ms"]) / float(line["latency_ms"])
        assert float(line["vs_baseline_speedup"]) == pytest.approx(speedup)


def test_rates_follow_from_exact_counts_and_shares_are_not_cut() -> None:
    case = replace(SMALL, group="attention", dtype="float16")
    for line in functions.lines_of(case, ["flash_v2", "naive"], 0, 1, Peaks(1e-9, None)):
        seconds = line.latency_ms / 1e3
        flops = (4 * 8 + 5) * 2 * 4 * 32 * 33 // 2
        nbytes = 2 * 2 * (4 * 4 * 32 * 8 + (4 * 4 * 32 * 32 if line.name == "naive" else 0))
        assert line.throughput_tflops == pytest.approx(flops / seconds / 1e12)
        assert line.memory_bandwidth_tb == pytest.approx(nbytes / seconds / 1e12)
        assert line.compute_utilization_pct > 100
        assert line.memory_utilization_pct is None


def test_a_wrong_result_has_no_time_and_fails_the_command(monkeypatch, capsys) -> None:
    attend = contestants.FlashAttentionV2.attend
    monkeypatch.setattr(contestants.FlashAttentionV2, "attend", lambda *x: attend(*x) * 1.1)
    options = ["--seq-lengths", "16", "--implementations", "sdpa", "flash_v2", "--iters", "1"]
    assert functions.main([*options, "--output", "csv"]) == 1
    right, wrong = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert right["latency_ms"]
    assert (wrong["latency_ms"], wrong["vs_baseline_speedup"]) == ("", "")


@pytest.mark.parametrize(("heads", "expected"), [(12, 3), (8, 2), (16, 4), (4, 1), (1, 1), (6, 1), (10, 2)])
def test_grouped_layers_have_about_a_quarter_of_the_heads(heads, expected) -> None:
    assert kv_heads_of(heads) == expected


def test_layers_give_speedups_and_reductions_over_naive() -> None:
    record = layers.record_of([SMALL, replace(SMALL, length=48)], runs=1)
    assert record["config"]["seq_lengths"] == [32, 48]
    assert list(record["results"]) == ["naive", "flash_v1", "flash_v2", "gqa", "sdpa"]
    naive = record["results"]["naive"]
    for name, numbers in record["results"].items():
        for measure, ratios in (("time_ms", "speedups"), ("memory_mb", "reductions")):
            pairs = zip(naive[measure], numbers[measure], strict=True)
            assert record[ratios][name] == [base / own for base, own in pairs]
    assert naive["memory_mb"][0] >= 2 * 32 * 32 * 4 / 1e6


def test_lengths_without_all_scores_are_null_in_strict_json(monkeypatch) -> None:
    monkeypatch.setattr(layers, "MOST_SCORE_BYTES", 4 * 2 * 4 * 32**2)
    record = layers.record_of([SMALL, replace(SMALL, length=48)], runs=1)
    text = layers.as_json(record)
    again = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert again == record
    assert again["results"]["sdpa"]["time_ms"][1] is again["speedups"]["flash_v2"][1] is None
    assert again["results"]["flash_v2"]["time_ms"][1] > 0
    assert "| 48 | naive |  |  |  |  |" in layers.as_table(record)
    with pytest.raises(ValueError, match="not JSON compliant"):
        layers.as_json({"nan": float("nan")})


def test_a_folder_gets_the_record_and_plots_of_a_theme(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(layers, "LENGTHS", (16,))
    sizes = ["--embed-dim", "32", "--num-heads", "4", "--num-runs", "1"]
    folder = tmp_path / "new" / "folder"
    assert (
        flashtile.main(["layers", *sizes, "--save-dir", str(folder), "--theme", "dark", "--non-causal"]) == 0
    )
    assert "| 16 | flash_v2 |" in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == ["dashboard.png", "results.json"]
    config = json.loads((folder / "results.json").read_text())["config"]
    assert (config["causal"], config["num_kv_heads"], config["num_warmups"]) == (False, 1, 2)


def test_without_plots_a_folder_gets_the_record_only_and_without_a_folder_it_is_printed(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(layers, "LENGTHS", (16,))
    sizes = ["--embed-dim", "16", "--num-heads", "2", "--num-runs", "1"]
    assert layers.main([*sizes, "--save-dir", str(tmp_path / "bare"), "--no-plots"]) == 0
    assert [path.name for path in (tmp_path / "bare").iterdir()] == ["results.json"]
    capsys.readouterr()
    assert layers.main(sizes) == 0
    assert json.loads(capsys.readouterr().out)["config"]["causal"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-seq-len", "255"], "--max-seq-len: got 255, expected at least 256"),
        (["--embed-dim", "100"], "--embed-dim: got 100, expected a multiple of 8 heads"),
        (["--theme", "dark"], "--theme: without --save-dir there are no plots"),
        (["--no-plots"], "--no-plots: without --save-dir there are no plots"),
        (["--no-plots", "--theme", "dark", "--save-dir", "x"], "--theme: with --no-plots there are no plots"),
    ],
)
def test_options_without_an_effect_are_refused(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        layers.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.skipif(mx.is_available(mx.gpu), reason="this machine has a GPU")
def test_a_gpu_that_is_missing_is_named(capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        layers.main(["--device", "gpu"])
    assert "--device: got gpu, expected cpu: MLX finds no GPU" in capsys.readouterr().err
