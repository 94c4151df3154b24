"""Flags of several ranks: what cannot work is refused before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny_llm.cli import main
from tiny_llm.cli.loaders import DEFAULT_LOADER
from tiny_llm.distributed.launch import Group, Host, read_group, read_hostfile
from tiny_llm.errors import ArgumentError

HERE = {"ssh": "localhost", "ips": ["127.0.0.1"]}


def hostfile(folder: Path, *hosts: object) -> Path:
    path = folder / "hosts.json"
    path.write_text(json.dumps(list(hosts)))
    return path


def test_a_group_of_one_is_a_single_process() -> None:
    assert read_group(None, None, None) is None
    assert read_group(1, None, None) is None
    assert read_group(None, 3, None) == Group("pipeline", 3)


def test_a_hostfile_of_mlx_launch_is_read(tmp_path: Path) -> None:
    other = {"ssh": "me@other", "ips": ["10.0.0.2", "10.0.1.2"], "rdma": [None, "x"]}
    hosts = read_hostfile(hostfile(tmp_path, HERE, other))
    assert hosts == (Host("localhost", "127.0.0.1"), Host("me@other", "10.0.0.2"))
    assert [host.is_here for host in hosts] == [True, False]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("name", "hostfile[1]"),
        ({"ssh": "a"}, "hostfile[1]"),
        ({"ssh": "a", "ips": []}, "hostfile[1]"),
        ({"ssh": "-oProxyCommand=x", "ips": ["10.0.0.1"]}, "hostfile[1]"),
        ({"ssh": "a", "ips": ["a name"]}, "hostfile[1].ips"),
    ],
)
def test_a_wrong_host_is_named(tmp_path: Path, entry: object, place: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        read_hostfile(hostfile(tmp_path, HERE, entry))
    assert raised.value.argument == place


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--tensor-parallel", "0"], "--tensor-parallel: got '0', expected a whole number of at least 1"),
        (["--tensor-parallel", "65"], "--tensor-parallel: got 65, expected a number from 1 to 64"),
        (
            ["--tensor-parallel", "2", "--pipeline-parallel", "2"],
            "--pipeline-parallel: got 2, expected no tensor_parallel beside it",
        ),
        (
            ["--tensor-parallel", "2", "--loader", DEFAULT_LOADER],
            "--tensor-parallel: cannot be combined with --loader",
        ),
        (
            ["--pipeline-parallel", "2", "--solution", "mlx"],
            "--pipeline-parallel: has no effect with --solution mlx",
        ),
        (["--hostfile", "HOSTS"], "expected tensor_parallel or pipeline_parallel beside it"),
        (
            ["--tensor-parallel", "2", "--hostfile", "HOSTS"],
            "got 2, expected 1, the number of hosts in HOSTS",
        ),
        (
            ["--tensor-parallel", "2", "--hostfile", "/no/file"],
            "--hostfile: got /no/file, expected a file that can",
        ),
    ],
)
@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
def test_flags_that_cannot_work_are_refused(tmp_path, capsys, command, flags, sentence) -> None:
    if command == "serve" and {"--loader", "--solution"} & set(flags):
        sentence = "unknown option"
    path = str(hostfile(tmp_path, HERE))
    try:
        code = main([command, *(path if flag == "HOSTS" else flag for flag in flags)])
    except SystemExit as refused:  # by argparse
        code = refused.code
    assert code == 2
    assert sentence.replace("HOSTS", path) in capsys.readouterr().err


def test_serve_divides_one_model_only(capsys) -> None:
    flags = ["--model", "tiny", "--model", "random:qwen2-0.5b", "--tensor-parallel", "2"]
    assert main(["serve", *flags]) == 2
    assert "--tensor-parallel: divides one --model only" in capsys.readouterr().err


def test_batch_takes_one_of_ranks_and_ray(tmp_path, capsys) -> None:
    request = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once"}}
    (tmp_path / "in.jsonl").write_text(json.dumps(request) + "\n")
    flags = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    assert main(["batch", *flags, "--ray", "--tensor-parallel", "2"]) == 2
    assert "--tensor-parallel: cannot be combined with --ray" in capsys.readouterr().err
