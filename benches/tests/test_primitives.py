"""`bench primitives`: counts of graphs, and that ours are not higher than mlx-lm's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import mlx.core as mx
import pytest

from benches.cases.primitives import Case, our_step
from benches.harness.gpu_graph import gpu_graphs
from benches.harness.machine import ROOT
from benches.harness.primitives import count
from benches.names import MLX_LM, TINY_LLM
from benches.primitives import main
from benches.report.pages import PRIMITIVES
from benches.report.primitives import NAMES, gpu_page, step_bytes, total
from benches.report.tables import Record


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The record of this tree. Compiled functions keep what they traced, so a process of its own counts."""
    file = tmp_path_factory.mktemp("counts") / "primitives.json"
    command = [sys.executable, "-m", "benches.primitives", "--json", str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def test_the_record_is_up_to_date(today: Record) -> None:
    assert json.loads(PRIMITIVES.read_text()) == today, (
        f"run `pdm bench primitives --json {PRIMITIVES.relative_to(ROOT)}`, "
        "then `python -m benches.report.pages`"
    )


@pytest.mark.parametrize("unit", ["primitives", "kernels"])
def test_a_step_of_ours_starts_no_more_than_one_of_mlx_lm(today: Record, unit: str) -> None:
    totals = {
        f"{row['model']} {row['weights']} {row['work']}": tuple(total(row, name, unit) for name in NAMES)
        for row in today["rows"]
    }
    assert {step: counts for step, counts in totals.items() if counts[0] > counts[1]} == {}


def test_both_families_weights_and_steps_are_counted(today: Record) -> None:
    steps = [(row["model"].partition("-")[0], row["weights"], row["work"]) for row in today["rows"]]
    for family in ("qwen2", "qwen3"):
        for weights in ("4-bit", "bf16"):
            for work in ("decode", "prefill"):
                assert (family, weights, work) in steps


def test_every_layer_of_mlx_lm_has_its_products_and_one_attention(today: Record) -> None:
    for row in today["rows"]:
        names = Counter(row[MLX_LM]["layer"]["names"])
        products = names["QuantizedMatmul"] + names["Matmul"] + names["AddMM"]
        assert (products, names["ScaledDotProductAttention"], names["RoPE"]) == (7, 1, 2)
        assert names["RMSNorm"] == (4 if row["model"].startswith("qwen3") else 2)
        assert names["Compiled"] == 1


def test_the_count_of_four_layers_follows_from_those_of_two_and_three(today: Record) -> None:
    for row in today["rows"]:
        with gpu_graphs() as blanks:
            graph = count(our_step(Case(row["model"], row["weights"], row["work"]), layers=4), blanks)
        expected = [total({**row, "layers": 4}, TINY_LLM, unit) for unit in ("primitives", "kernels")]
        assert expected == [graph.primitives.total(), graph.kernels]


def evaluated(*shape: int) -> mx.array:
    x = mx.ones(shape)
    mx.eval(x)
    return x


def test_a_primitive_counts_once_however_often_its_result_is_used() -> None:
    x = evaluated(4)
    y = mx.exp(x)
    graph = count([y * y, y + x, y], {})
    assert graph.primitives == Counter(Exp=1, Multiply=1, Add=1)
    assert graph.kernels == 3


def test_an_evaluated_array_is_a_leaf() -> None:
    y = mx.exp(evaluated(4))
    mx.eval(y)
    assert count([mx.sin(y)], {}).primitives == Counter(Sin=1)
    assert count([y], {}).primitives == Counter()


def test_views_start_no_kernel_and_a_primitive_of_two_results_counts_once() -> None:
    left, right = mx.split(evaluated(2, 4), 2, axis=1)
    graph = count([left.T[:1], right.view(mx.int32)], {})
    assert graph.primitives == Counter(Split=1, Transpose=1, Slice=1, View=1)
    assert graph.kernels == 0


def test_a_concatenation_starts_a_kernel_for_each_input() -> None:
    x = evaluated(2, 4)
    assert count([mx.concatenate([x, x, x])], {}).kernels == 3


def test_each_call_of_a_compiled_function_counts_as_one_primitive() -> None:
    x = evaluated(4)
    swish = mx.compile(lambda y: y * mx.sigmoid(y))
    graph = count([swish(swish(x))], {})
    assert graph.primitives == Counter(Compiled=2)
    assert graph.kernels == 2


def test_a_primitive_that_no_gpu_runs_is_refused() -> None:
    product = mx.linalg.cholesky(evaluated(1, 1), stream=mx.cpu)
    with pytest.raises(ValueError, match="count: primitive: got Cholesky"):
        count([product], {})


HEADS = (1, 2, 5, 64)


def fused_operations() -> dict[str, mx.array]:
    """One result of each fused operation, by its primitive."""
    x, weight, heads = evaluated(1, 5, 64), evaluated(64), evaluated(*HEADS)
    packed = mx.quantize(evaluated(8, 64))
    mx.eval(packed)
    return {
        "RMSNorm": mx.fast.rms_norm(x, weight, 0.0),
        "RoPE": mx.fast.rope(heads, 64, traditional=False, base=1e4, scale=1.0, offset=3),
        "ScaledDotProductAttention": mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=1.0),
        "Quantize": mx.dequantize(*packed, group_size=64, bits=4),
    }


def test_a_fused_operation_is_one_primitive_as_on_a_gpu() -> None:
    with gpu_graphs() as blanks:
        results = fused_operations()
        for name, result in results.items():
            graph = count([result], blanks)
            assert (graph.primitives, graph.kernels) == (Counter({name: 1}), 1)
    of_mlx = fused_operations()  # after the block these are MLX's again
    for name, expected in of_mlx.items():
        assert (results[name].shape, results[name].dtype) == (expected.shape, expected.dtype)
    assert mx.array_equal(of_mlx["RMSNorm"], mx.ones((1, 5, 64)))


def test_a_fused_operation_converts_as_mlx_does() -> None:
    """A weight in float32 makes a norm float32; a mask takes the type of the query."""
    x, weight, heads = evaluated(1, 64).astype(mx.bfloat16), evaluated(64), evaluated(*HEADS)
    mask = evaluated(5, 5).astype(mx.bfloat16)
    mx.eval(x, mask)

    def results() -> list[mx.array]:
        attended = mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=1.0, mask=mask)
        return [mx.fast.rms_norm(x, weight, 0.0), attended]

    with gpu_graphs() as blanks:
        norm, attended = results()
        assert count([norm], blanks).primitives == Counter(RMSNorm=1, AsType=1)
        names = Counter(ScaledDotProductAttention=1, AsType=1, Broadcast=1)
        assert count([attended], blanks).primitives == names
    assert [norm.dtype, attended.dtype] == [result.dtype for result in results()]


def test_a_fused_operation_in_a_compiled_function_counts_in_each_call() -> None:
    x, weight = evaluated(1, 64), evaluated(64)
    with gpu_graphs() as blanks:
        normalised = mx.compile(lambda y: mx.fast.rms_norm(y, weight, 0.0))
        assert count([normalised(normalised(x))], blanks).primitives == Counter(RMSNorm=2)


def test_attention_that_no_gpu_computes_fused_is_refused() -> None:
    heads = evaluated(1, 2, 5, 20)
    with (
        gpu_graphs(),
        pytest.raises(ValueError, match="q: got head size 20, expected one that a GPU computes"),
    ):
        mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=1.0)


def test_the_bytes_of_a_step_are_those_of_the_published_models() -> None:
    """Their numbers of parameters, without biases, norms and an embedding that is not the output matrix."""
    half = 494_032_768 - 24 * (896 + 2 * 128) - 49 * 896
    seven = 7_615_616_512 - 28 * (3584 + 2 * 512) - 57 * 3584 - 152_064 * 3584
    assert step_bytes("qwen2-0.5b", "bf16") == 2 * half + 129 * 24 * 2 * 2 * 64 * 2
    assert step_bytes("qwen2-7b", "4-bit") == seven * 9 / 16 + 129 * 28 * 2 * 4 * 128 * 2


def test_the_page_has_the_counts_and_times_of_a_record() -> None:
    text = "".join(f"<!-- table: {name} -->\nold\n<!-- end -->\n" for name in ("measured", "counts", "steps"))
    part = {"layer": {"primitives": 3, "kernels": 2}, "outside": {"primitives": 5, "kernels": 4}}
    row = {
        "model": "qwen2-7b",
        "weights": "4-bit",
        "work": "decode",
        "layers": 28,
        "ours": part,
        "mlx-lm": part,
    }
    run = {"work": "decode", "unit": "tok/s", "ours": 300.0, "mlx-lm": 200.0, "ratio": 1.5}
    page = gpu_page(text, {"rows": [row]}, {"rows": [{**run, "target": ">= 1.60x", "met": False}]})
    assert "| decode | 300 tok/s | 200 tok/s | 1.50x | >= 1.60x: missed |" in page
    counts = "28 × 3 + 5 = 89"
    assert f"| qwen2-7b, 4-bit, decode after 128 tokens | {counts} | {counts} | 28 × 2 + 4 = 60 |" in page
    assert "| qwen2-7b, 4-bit | 3.98 GB | 60 | 60 | 58.4 ms, 17.1 tok/s |" in page
    assert "old" not in page
    with pytest.raises(ValueError, match="got 0 places for the table 'measured', expected 1"):
        gpu_page("", {"rows": [row]}, {"rows": []})


def test_without_a_gpu_its_own_graphs_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mx, "is_available", lambda device: False)
    with pytest.raises(SystemExit) as ended:
        main(["--device", "gpu"])
    assert ended.value.code == 2
    assert "--device: got gpu, expected cpu: MLX finds no GPU" in capsys.readouterr().err
