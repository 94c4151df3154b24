"""`--only` chooses rows, and `--add` keeps those that a run does not measure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benches import prefill
from benches.cases.packed import Prompts
from benches.harness.records import joined
from benches.suite import Record, run

SMALL = Prompts("short", 2, 8, 1, heads=2, kv_heads=1, D=16)
LONG = replace(SMALL, group="long", length=300)
SUITE = replace(prefill.SUITE, cases=lambda group: [case for case in (SMALL, LONG) if case.group == group])


def row(name: str, threads: int, value: int = 0, group: str = "g") -> Record:
    return {"group": group, "row": name, "threads": threads, "value": value}


def test_new_rows_replace_old_ones_in_the_order_of_the_suite() -> None:
    old = {
        "threads": [2], "measured": "then", "versions": {"peer": "1", "mlx": "1"}, "builds": {"peer": "slow"},
        "rows": [row("a", 2), row("c", 2), row("gone", 2)],
    }  # fmt: skip
    new = {"threads": [1], "measured": "now", "versions": {"mlx": "2"}, "builds": {"mlx": "new"}}
    new["rows"] = [row("b", 1), row("c", 1)]
    whole = joined(old, new, [("g", name) for name in "abc"])
    assert [(each["row"], each["threads"]) for each in whole["rows"]] == [
        ("a", 2), ("b", 1), ("c", 1), ("c", 2)
    ]  # fmt: skip
    assert (whole["threads"], whole["measured"]) == ([1, 2], "now")
    assert whole["versions"] == {"peer": "1", "mlx": "2"}
    assert whole["builds"] == {"peer": "slow", "mlx": "new"}
    newest = {"threads": [2], "versions": {}, "builds": {}, "rows": [row("a", 2, 9), row("a", 2, 8, "h")]}
    again = joined(whole, newest, [*(("g", name) for name in "abc"), ("h", "a")])
    assert [each["value"] for each in again["rows"]] == [9, 0, 0, 0, 8]  # groups may share a name


def test_runs_fill_one_record(tmp_path, capsys) -> None:
    file = tmp_path / "prefill.json"
    options = ["--threads", "1", "--repeats", "1", "--json", str(file), "--add"]
    assert run(SUITE, [*options, "--only", "x 300"]) == 0
    assert [each["row"] for each in json.loads(file.read_text())["rows"]] == [LONG.name]
    assert run(SUITE, [*options, "--only", "x 8 ", "x 9 "]) == 0
    assert [each["row"] for each in json.loads(file.read_text())["rows"]] == [SMALL.name, LONG.name]
    assert f"| {LONG.name} | 1 | standard |" in capsys.readouterr().out
    file.write_text(json.dumps({**json.loads(file.read_text()), "cpu": "another"}))
    before = file.read_text()
    with pytest.raises(SystemExit, match="2"):
        run(SUITE, options)
    assert "--add: " in (error := capsys.readouterr().err)
    assert "cpu: got 'another'" in error
    assert file.read_text() == before


def test_an_option_that_chooses_nothing_is_an_error(capsys) -> None:
    assert run(SUITE, ["--only", "nothing"]) == 2
    assert "--quick or --only leaves none of these rows" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(SUITE, ["--add"])
    assert "--add: got no --json FILE" in capsys.readouterr().err
