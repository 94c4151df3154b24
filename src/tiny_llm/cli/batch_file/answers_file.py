"""The output of a batch file: a line of JSON for each answer. A file of an earlier run is continued."""

import fcntl
import os
from io import FileIO
from pathlib import Path
from typing import Self

import msgspec

from ..exit_codes import Failure, Refusal
from ..output_files import check_writable, unfinished
from .lines import digest

FLAG = "--output"
BEGIN = b'{"id":"batch_req_'  # of every line
SUCCESS = 200


class WrittenResponse(msgspec.Struct):
    status_code: int


class Written(msgspec.Struct):
    """What is read again of a line."""

    id: str
    custom_id: str | None
    response: WrittenResponse | None

    @property
    def answered(self) -> tuple[bytes, str] | None:
        """The digest of the custom_id and the mark of the request, if this is no error."""
        if self.custom_id is None or self.response is None or self.response.status_code != SUCCESS:
            return None
        return digest(self.custom_id), self.id.rpartition("_")[2]


def error_record(number: int, custom_id: str | None, problem: str) -> bytes:
    """A line as in OpenAI's files for what is no request."""
    error = {"code": "invalid_line", "message": problem}
    return _encoded({"id": f"batch_req_{number}", "custom_id": custom_id, "response": None, "error": error})


def record(number: int, custom_id: str | None, response: dict[str, object], request: str) -> bytes:
    """A line as in OpenAI's files: a response of the server. `request` is the mark of what it answers."""
    name = f"batch_req_{number}_{request}"
    return _encoded({"id": name, "custom_id": custom_id, "response": response, "error": None})


def _encoded(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode(fields) + b"\n"


class AnswersFile:
    """`with AnswersFile(path) as file:` continues a file; only one process at a time may.

    Complete answers stay. A line that was not written to its end and those with an error are removed: their
    requests are answered again. Devices and pipes are only written.

    answered: the digests of the ids that have an answer, each with the mark of its request.
    """

    def __init__(self, path: Path):
        check_writable({FLAG: path})
        self._path = path
        self.answered: dict[bytes, str] = {}

    def __enter__(self) -> Self:
        path = self._path.resolve()
        self._file = FileIO(path, "ab")
        try:
            if path.is_file():
                self._lock(self._file)
                self._resume(path)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: bytes) -> None:
        """Write a line at once, so that it survives whatever ends the run."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            advice = "the answers before are complete; run the same command again to continue"
            raise Failure(f"{FLAG}: {self._path} cannot be written: {error.strerror}; {advice}") from error

    def _lock(self, file: FileIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal(f"{FLAG}: {self._path} is being written by another run") from error
        if file is self._file and not os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
            raise Refusal(f"{FLAG}: {self._path} has just been written by another run; try again")

    def _resume(self, path: Path) -> None:
        end, has_errors = 0, False
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                answered = self._read(number, line)
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                if answered is None:
                    has_errors = True
                else:
                    self.answered |= [answered]
        self._file.truncate(end)
        if has_errors:
            self._drop_errors(path)

    def _read(self, number: int, line: bytes) -> tuple[bytes, str] | None:
        """The id that has its answer in this line, and the request; None if it has an error, or no end."""
        is_ours = line.startswith(BEGIN[: len(line)])
        if is_ours and not line.endswith(b"\n"):
            return None
        try:
            if not is_ours:
                raise msgspec.DecodeError
            return msgspec.json.decode(line, type=Written).answered
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            expected = "a file that `batch` has written, or a new one"
            place = f"{FLAG}: {self._path}: line {number}"
            raise Refusal(f"{place}: got no answer of a batch file, expected {expected}") from error

    def _drop_errors(self, path: Path) -> None:
        """Go on in a new file with the complete answers, which then takes the place of this one."""
        errors, self._file = self._file, FileIO(unfinished(path), "ab")
        with errors:
            try:
                os.fchmod(self._file.fileno(), path.stat().st_mode & 0o777)
                fcntl.flock(self._file, fcntl.LOCK_EX)
                with path.open("rb") as file:
                    for number, line in enumerate(file, start=1):
                        if self._read(number, line) is not None:
                            self.write(line)
                os.replace(unfinished(path), path)
            except BaseException:
                unfinished(path).unlink(missing_ok=True)
                raise
