"""The file of answers that `batch` writes: a line of JSON for each, and what it has from an earlier run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from ..generation.result import Result
from .exit_codes import Refusal
from .output_files import check_writable, write_whole
from .prompts import Question

FLAG = "--output"


def as_record(question: Question, result: Result) -> dict[str, Any]:
    """An answer with the fields of `generate --json`, or its error.

    generated_tokens includes the end token.
    """
    if result.error is not None:
        return {**question.fields(), "error": str(result.error)}
    return {
        **question.fields(),
        "text": result.text,
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.statistics.prompt_tokens,
        "generated_tokens": result.statistics.generated_tokens,
    }


def as_line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def write_line(file: TextIO, record: dict[str, Any]) -> None:
    """Write an answer and flush, so that it survives whatever ends the run."""
    file.write(as_line(record))
    file.flush()


def check_output(path: Path | None, *, resume: bool) -> None:
    """Refuse a file that cannot be written, or that has answers if these are not to be kept."""
    if resume and path is None:
        raise Refusal(f"--resume: needs {FLAG}, the file of an interrupted run")
    check_writable({FLAG: path})
    if not resume and path is not None and path.is_file() and path.stat().st_size:
        raise Refusal(
            f"{FLAG}: {path} exists and is not empty; choose another file, remove it, or give --resume"
        )


class EarlierAnswers:
    """The complete answers in a file, by the number of their line in the input.

    A line that was not written to its end, and those with an error, count as not answered.
    """

    def __init__(self, path: Path | None, questions: Sequence[Question]):
        self._path = path
        self._records: dict[int, dict[str, Any]] = {}
        known: dict[Any, Any] = {
            question.line: json.loads(json.dumps(question.fields())) for question in questions
        }
        lines = path.read_bytes().split(b"\n")[:-1] if path is not None and path.is_file() else []
        for number, line in enumerate(lines, start=1):
            record = self._read(number, line)
            if "error" in record:
                continue
            expected = known.get(record["line"])
            names = ("line", "id", "prompt", "messages")
            if expected != {name: record[name] for name in names if name in record}:
                raise self._refusal(number, "an answer to another question", "one of this --input")
            self._records[record["line"]] = record

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, question: Question) -> bool:
        return question.line in self._records

    def check_prompt(self, question: Question, tokens: int) -> None:
        """Refuse an answer to a prompt of another length."""
        known = self._records.get(question.line, {}).get("prompt_tokens", tokens)
        if known != tokens:
            place = f"--resume: {self._path}: question {question.line}"
            expected = f"expected {tokens}: use the model and options of that run"
            raise Refusal(f"{place}: got a prompt of {known} tokens, {expected}")

    def keep(self) -> None:
        """Leave only these answers in the file."""
        content = "".join(map(as_line, self._records.values())).encode()
        if self._path is not None and self._path.is_file() and self._path.read_bytes() != content:
            write_whole(self._path, content)

    def _read(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if (
            not isinstance(record, dict)
            or type(record.get("line")) is not int
            or not ("error" in record or "text" in record)
        ):
            raise self._refusal(number, "no answer of `batch`", "one on each line")
        return record

    def _refusal(self, number: int, got: str, expected: str) -> Refusal:
        return Refusal(f"--resume: {self._path}: line {number}: got {got}, expected {expected}")
