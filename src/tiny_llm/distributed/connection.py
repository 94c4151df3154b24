"""The side of a follower: the messages of rank 0 in order, and an end if that is lost."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from typing import Any

from .leader import BEAT_SECONDS, SILENT_SECONDS, START_SECONDS
from .messages import Frame, Kind, json_frame, read_frame, write_frame

LOST = 3  # the exit code of a follower whose leader is gone
END_SECONDS = 3  # to leave after rank 0 has finished


class LeaderConnection:
    """To rank 0. This process ends at once, with exit code 3, when that is gone or silent."""

    def __init__(self, address: str, greeting: dict[str, Any]):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=START_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sending = threading.Lock()
        self._frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self.finished = 0  # steps
        self.send(json_frame(Kind.HELLO, greeting))
        for target in (self._listen, self._beat):
            threading.Thread(target=target, daemon=True).start()

    def frames(self) -> Iterator[Frame]:
        """The messages of rank 0, until it has finished."""
        while (frame := self._frames.get()).kind is not Kind.END:
            yield frame

    def joined(self) -> None:
        """From now on rank 0 is never silent: MLX has connected all ranks, which stops every thread."""
        self._socket.settimeout(SILENT_SECONDS)

    def send(self, frame: Frame) -> None:
        with self._sending:
            write_frame(self._socket, frame)

    def _listen(self) -> None:
        try:
            while True:
                frame = read_frame(self._socket)
                if frame.kind is not Kind.BEAT:
                    self._frames.put(frame)
                if frame.kind is Kind.END:
                    break
            time.sleep(END_SECONDS)
            end_now("rank 0 has finished within a step")
        except TimeoutError:
            end_now(f"rank 0 is lost: silent for {SILENT_SECONDS:g} s")
        except EOFError:
            end_now("rank 0 is lost: it has closed its connection")
        except BaseException as error:
            end_now(f"rank 0 is lost: {error}")

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            try:
                self.send(Frame(Kind.BEAT, array("i", [self.finished]).tobytes()))
            except OSError:
                return


def end_now(reason: str) -> None:
    """End this process, whatever its other threads wait for."""
    try:
        print(f"tiny-llm: {reason}", file=sys.stderr, flush=True)
    finally:  # nobody may be there to read it
        os._exit(LOST)
