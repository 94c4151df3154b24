"""Answers a batch file: reads, answers and writes line by line, and counts."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from ..arguments import SYSTEM
from ..build_backend import group_of
from ..exit_codes import Failure, Refusal, flag, optional_packages, print_stderr
from ..output_files import print_json
from ..progress import ProgressBar, dimmed
from .answers_file import AnswersFile
from .application import Application, BatchAnswer, start_engine
from .cluster_options import refuse_cluster
from .lines import read_requests

TASK = "answering"
# Options of questions, which a request says in its body, and of the course's loops; with their defaults.
WITHOUT_EFFECT = {"raw": False, "enable_thinking": False, "system": SYSTEM, "loader": None}


class Tally:
    """Writes answers, counts them, and reports progress."""

    def __init__(self, path: Path, answers: AnswersFile, progress: ProgressBar):
        self._size = path.stat().st_size
        self._answers = answers
        self._progress = progress
        self._end = 0  # of the part of the file that has been answered
        self.kept = len(answers.answered)
        self.written = 0
        self.failed = 0
        self.first_failed = sys.maxsize

    def write(self, answer: BatchAnswer) -> None:
        self._answers.write(answer.line)
        self.written += 1
        if answer.failed:
            self.failed += 1
            self.first_failed = min(self.first_failed, answer.number)
        self._end = max(self._end, answer.end)
        self._progress(TASK, self._end, self._size)


def run(options: argparse.Namespace) -> int:
    """Answer the file --input, and report; Failure if a line has an error instead of an answer."""
    check_options(options)
    answer = answer_here
    if options.ray is not None:
        with optional_packages("ray"):
            from .cluster import answer_on_cluster as answer
    path, start = Path(options.input), time.perf_counter()
    with AnswersFile(options.output) as answers, ProgressBar() as progress:
        tally = Tally(path, answers, progress)
        if has_open_lines(path, answers.answered, options.model):  # else a model is not needed
            answer(options, path, answers.answered, progress, tally.write)
    report = {
        "model": options.model,
        "kept": tally.kept,
        "answers": tally.written - tally.failed,
        "failed": tally.failed,
        "seconds": time.perf_counter() - start,
    }
    if options.json:
        print_json(report, indent=2)
    else:
        print_stderr(dimmed(report_line(report), sys.stderr))
    if tally.failed:
        raise Failure(
            f"{tally.failed} lines have an error, which {options.output} says; the first is line "
            f"{tally.first_failed}. The same command tries these lines again"
        )
    return 0


def has_open_lines(path: Path, answered: dict[bytes, str], model: str) -> bool:
    """Whether a line has no answer. With answers, all lines are read: each must be that of its request."""
    lines = read_requests(path, dict(answered), model)
    return sum(1 for _ in lines) > 0 if answered else any(lines)


def check_options(options: argparse.Namespace) -> None:
    if options.output is None:
        raise Refusal("--output: needed for a file of requests; the answers are written to it")
    for name, neutral in WITHOUT_EFFECT.items():
        if getattr(options, name) != neutral:
            raise Refusal(f"{flag(name)}: has no effect on a file of requests")
    if options.ray is None:
        refuse_cluster(options, "needs --ray")
    elif options.threads is not None:
        raise Refusal(
            "--threads: has no effect with --ray: an engine has a thread for each of its --ray-cpus"
        )
    group_of(options, None if options.ray is None else "cannot be combined with --ray")


def answer_here(
    options: argparse.Namespace,
    path: Path,
    answered: dict[bytes, str],
    progress: ProgressBar,
    write: Callable[[BatchAnswer], None],
) -> None:
    """Give `write` the answers of one engine, in this process."""

    async def answer_all(application: Application) -> None:
        async with aclosing(application.answer_all(read_requests(path, answered, options.model))) as answers:
            async for answer in answers:
                write(answer)

    with start_engine(options, progress) as engine:
        progress(TASK, 0, None)
        asyncio.run(answer_all(Application(options, engine)))


def report_line(report: dict[str, Any]) -> str:
    kept = f"{report['kept']} answers kept, " if report["kept"] else ""
    failed = f", {report['failed']} errors" if report["failed"] else ""
    return f"{kept}{report['answers']} answers{failed} in {report['seconds']:.1f} s | {report['model']}"
