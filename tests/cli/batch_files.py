"""Batch files for the tests: their lines, and what their answers say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..support.processes.child import ROOT
from .terminal import PATIENCE, environment

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
EXACT = ("--dtype", "float32")  # answers do not depend on the other lines


def request(custom_id: str, url: str = COMPLETION, **body: Any) -> str:
    given = (
        {"prompt": f"What is {custom_id}?", "max_tokens": 4, "temperature": 0} if url == COMPLETION else {}
    )
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": given | body})


SUM = request("sum", CHAT, messages=[{"role": "user", "content": "What is 7 + 5?"}], temperature=0)


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(path: Path) -> list[tuple[Any, ...]]:
    """What does not change from run to run of each line, sorted."""
    found = []
    for record in records(path):
        response = record["response"] or {"status_code": None, "body": {}}
        choices = json.dumps(response["body"].get("choices"))
        found.append(
            (record["id"], record["custom_id"], response["status_code"], choices, str(record["error"]))
        )
    return sorted(found, key=str)


def start(*flags: str, before: str = "", **changes: str) -> subprocess.Popen[str]:
    """`tiny-llm batch` as a process of its own, after the statements `before`."""
    program = f"import sys\n{before}\nfrom tiny_llm.cli import main\nsys.exit(main(['batch', *sys.argv[1:]]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, *flags],
        cwd=ROOT,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
