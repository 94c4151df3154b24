"""Many clients and one real server, for a given time: `pdm run soak --minutes 60 --json soak.json`.

Exit code 1 if a check of the report failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from .clients import Client, Outcomes
from .questions import Question, make_questions
from .report import Run, as_json, as_text, checks
from .server import ServerProgram, server_program
from .sources import changed_files, file_times, folders

QUESTIONS = 24  # for chats, and as many for completions
PROGRESS_SECONDS = 60.0


async def load(
    server: ServerProgram, questions: list[Question], options: argparse.Namespace, outcomes: Outcomes
) -> list[tuple[float, int]]:
    """Run all clients; the memory of the server meanwhile."""
    start = time.monotonic()
    until = start + 60 * options.minutes
    clients = [
        Client(server.port, questions, outcomes, number, options.seed) for number in range(options.clients)
    ]
    tasks = [asyncio.create_task(client.run(until)) for client in clients]
    running = asyncio.gather(*tasks)
    memory: list[tuple[float, int]] = []
    next_line = start + PROGRESS_SECONDS
    while time.monotonic() < until:
        memory.append((time.monotonic() - start, server.memory()))
        if time.monotonic() > next_line:
            second, size = memory[-1]
            problems = len(outcomes.problems)
            print(
                f"{second:6.0f} s  {outcomes.sent} requests, {problems} problems, {size >> 20} MiB",
                flush=True,
            )
            next_line += PROGRESS_SECONDS
        await asyncio.sleep(min(1.0, options.minutes))
    await running
    return memory


def main() -> int:
    parser = argparse.ArgumentParser(prog="pdm run soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="default: %(default)g")
    parser.add_argument("--clients", type=int, default=64, help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the choices of the clients; default: %(default)s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON, too")
    options = parser.parse_args()
    sources = file_times(folders())
    questions, outcomes = make_questions(QUESTIONS, options.seed), Outcomes()
    with tempfile.TemporaryDirectory() as folder, server_program(Path(folder) / "log") as server:
        begin = time.monotonic()
        memory = asyncio.run(load(server, questions, options, outcomes))
        seconds = time.monotonic() - begin
        metrics = server.at_rest()
        exit_code = server.stop()
        run = Run(
            options.clients,
            seconds,
            outcomes,
            memory,
            metrics,
            server.reported(),
            server.errors(),
            exit_code,
            changed_files(sources, file_times(folders())),
        )
    print(as_text(run))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(run), indent=1) + "\n")
    return 0 if all(check.passed for check in checks(run)) else 1


if __name__ == "__main__":
    sys.exit(main())
