"""The side of a follower: the messages of rank 0 in order, and an end if that is lost."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..errors import RankLost
from .leader import BEAT_SECONDS, SILENT_SECONDS
from .messages import Frame, Kind, json_frame, read_frame, write_frame

LOST = 3  # the exit code of a follower whose leader is gone


class LeaderConnection:
    """To rank 0. This process ends at once, with exit code 3, when that is gone or silent."""

    def __init__(self, address: str, greeting: dict[str, Any]):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SILENT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sending = threading.Lock()
        self._frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self.host = self._socket.getsockname()[0]
        self.send(json_frame(Kind.HELLO, greeting))
        for target in (self._listen, self._beat):
            threading.Thread(target=target, daemon=True).start()

    def frames(self) -> Iterator[Frame]:
        """The messages of rank 0, until it has finished."""
        while (frame := self._frames.get()).kind is not Kind.END:
            yield frame

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
                    return
        except (OSError, EOFError, RankLost) as error:
            end_now(f"rank 0 is lost: {error or 'it has closed its connection'}")

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            try:
                self.send(Frame(Kind.BEAT))
            except OSError:
                return


def end_now(reason: str) -> None:
    """End this process, whatever its other threads wait for."""
    print(f"tiny-llm: {reason}", file=sys.stderr, flush=True)
    os._exit(LOST)
