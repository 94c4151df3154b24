"""What ranks tell each other beside MLX's operations: frames over TCP, of bounded size, without any code."""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from array import array
from enum import IntEnum
from typing import Any, NamedTuple

from ..errors import RankLost

MAX_FRAME = 64 * 2**20  # bytes; the pages of 64 requests of a million tokens take 4 MiB
MAX_HELLO = 4096  # from anybody who connects
HEADER = struct.Struct("<IB")  # size of the payload, kind


class Kind(IntEnum):
    """What a frame says."""

    HELLO = 1  # JSON: who a follower is
    JOIN = 2  # JSON: the group, and the model to load
    READY = 3  # the model is loaded
    START = 4  # JSON: sizes of an engine that begins
    STEP = 5  # int32 numbers: rows and pages
    REST = 6  # int32 numbers: the requests that have ended
    END = 7  # the leader has finished
    BEAT = 8  # a process is alive; from a follower with the number of steps that it has finished
    FAULT = 9  # JSON: why a follower ends


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    payload: bytes = b""

    def json(self) -> dict[str, Any]:
        """The JSON object of the payload."""
        read = json.loads(self.payload)
        if not isinstance(read, dict):
            raise RankLost(f"a message of kind {self.kind.name} is no JSON object")
        return read

    def numbers(self) -> array[int]:
        """The numbers of the payload."""
        numbers = array("i")
        numbers.frombytes(self.payload)
        return numbers


def json_frame(kind: Kind, values: dict[str, Any]) -> Frame:
    return Frame(kind, json.dumps(values).encode())


def write_frame(connection: socket.socket, frame: Frame) -> None:
    if len(frame.payload) > MAX_FRAME:
        raise RankLost(f"a message has {len(frame.payload)} bytes, expected at most {MAX_FRAME}")
    connection.sendall(HEADER.pack(len(frame.payload), frame.kind) + frame.payload)


def read_frame(connection: socket.socket, most: int = MAX_FRAME, deadline: float = math.inf) -> Frame:
    """The next frame, of at most `most` bytes; EOFError at the end of the connection, TimeoutError past the
    deadline, RankLost for what is no frame.
    """
    size, kind = HEADER.unpack(_read_exactly(connection, HEADER.size, deadline))
    if size > most or kind not in list(Kind):
        raise RankLost(f"got a message of kind {kind} and {size} bytes, expected at most {most}")
    return Frame(Kind(kind), _read_exactly(connection, size, deadline))


def _read_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        if time.monotonic() > deadline:
            raise TimeoutError
        read = connection.recv(min(size - len(data), 2**20))
        if not read:
            raise EOFError
        data += read
    return bytes(data)
