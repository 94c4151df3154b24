"""The lines of a batch file, one after another: requests, and what is wrong with lines that are none."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ...server.settings import Settings
from ..exit_codes import Refusal
from ..prompts import FLAG, InvalidLine, json_type

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
# Bytes of a line: a body as large as the server accepts, and what is around it. A longer line is not kept.
MAX_LINE = Settings().max_body + 2**16


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A request of a file; or, with a `problem`, a line that is none.

    end: the bytes of the file up to the end of this line.
    """

    number: int
    end: int
    custom_id: str | None = None
    url: str = ""
    body: bytes = b""
    problem: str = ""


class LineFields(msgspec.Struct):
    """What a line may be; `read_request` checks the types, so that an error has the custom_id of its line."""

    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class StreamField(msgspec.Struct):
    stream: Any = None


def digest(custom_id: str) -> bytes:
    """What is kept of an id, of which a file may have millions."""
    return blake2b(custom_id.encode(), digest_size=16).digest()


def mark(url: str, body: bytes, model: str) -> str:
    """What an answer keeps of its request: another one of the same id has another."""
    return blake2b(b"\0".join((url.encode(), model.encode(), body)), digest_size=8).hexdigest()


def read_requests(path: Path, answered: dict[bytes, str], model: str) -> Iterator[BatchLine]:
    """The lines without an answer of `model`; a Refusal for one with the answer to another request.

    `answered` has the digests of ids that have an answer, each with the mark of its request, and shrinks.
    """
    seen: set[bytes] = set()
    with path.open("rb") as file:
        for number, (content, end) in enumerate(_lines(file), start=1):
            if content is not None and not content.strip():
                continue
            line = _read_line(number, end, content)
            if line.custom_id is not None:
                known = digest(line.custom_id)
                if known in seen:
                    problem = "custom_id: a line before has the same one"
                    line = BatchLine(number, end, line.custom_id, problem=problem)
                elif known in answered:
                    if answered.pop(known) != mark(line.url, line.body, model):
                        raise Refusal(
                            f"{FLAG}: line {number}: custom_id {line.custom_id!r}: the output has the answer "
                            "to another request or of another model; give a new --output"
                        )
                    seen.add(known)
                    continue
                seen.add(known)
            yield line


def _lines(file: BinaryIO) -> Iterator[tuple[bytes | None, int]]:
    """Each line, or None for one that is too long, with its end."""
    end = 0
    while part := file.readline(MAX_LINE + 1):
        end += len(part)
        content = part if len(part) <= MAX_LINE else None
        while not part.endswith(b"\n") and (part := file.readline(MAX_LINE)):
            end += len(part)
        yield content, end


def _read_line(number: int, end: int, content: bytes | None) -> BatchLine:
    custom_id = None
    try:
        if content is None:
            raise InvalidLine(f"got more than {MAX_LINE} bytes, expected at most that many")
        try:
            fields = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"), type=LineFields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidLine(f"got invalid JSON, expected an object: {error}") from error
        if not isinstance(fields.custom_id, str) or not fields.custom_id:
            raise InvalidLine(f"custom_id: got {_shown(fields.custom_id)}, expected a string")
        custom_id = fields.custom_id
        try:
            body = _checked_body(fields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidLine(f"body: got invalid JSON, expected an object: {error}") from error
    except InvalidLine as error:
        return BatchLine(number, end, custom_id, problem=str(error))
    return BatchLine(number, end, custom_id, fields.url, body)


def _checked_body(fields: LineFields) -> bytes:
    """The body of a request whose other fields are right. What is wrong inside it is left to the server."""
    for name, allowed in (("method", ("POST",)), ("url", URLS)):
        given = getattr(fields, name)
        if given not in allowed:
            raise InvalidLine(f"{name}: got {_shown(given)}, expected {', '.join(allowed)}")
    body = bytes(fields.body)
    if not body.startswith(b"{"):
        raise InvalidLine(f"body: got {_shown(msgspec.json.decode(body))}, expected an object")
    if msgspec.json.decode(body, type=StreamField).stream is True:
        raise InvalidLine("body: stream: got true, expected false: each line gets one whole answer")
    return body


def _shown(given: Any) -> str:
    """A value in an error text; null counts as absent, as in the fields of a body."""
    if given is None:
        return "nothing"
    return f"{json.dumps(given):.80}" if isinstance(given, str) else json_type(given)
