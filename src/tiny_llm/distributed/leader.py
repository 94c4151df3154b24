"""Rank 0's side of the connections: it tells each step to the others, and notices when one is lost."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import RankLost
from .messages import MAX_HELLO, Frame, Kind, read_frame, write_frame

RankProcess = subprocess.Popen[bytes]  # that runs a rank, or the ssh that does

BEAT_SECONDS = 1.0
SILENT_SECONDS = 8.0  # after which a rank is lost; a lost one is noticed within 10
HELLO_SECONDS = 60.0  # for Python and the imports of another rank, on a busy machine
START_SECONDS = 120.0  # of silence, until MLX has connected all ranks, which stops the threads of Python
GREETING_SECONDS = 2.0
STEP_SECONDS = 600.0  # for a step; ranks that wait for each other in MLX look alive


class Leader:
    """The followers of rank 0, each over one connection. A lost one ends the work of all.

    `on_lost` is called then, once, in a thread of its own; it returns whether somebody waits in MLX for ever.
    """

    def __init__(self, host: str, size: int):
        self.token = secrets.token_hex(32)
        self.lost: RankLost | None = None
        self.is_stuck = False  # somebody waits in MLX for a lost rank
        self.on_lost: Callable[[RankLost], bool] = lambda lost: False
        self._size = size
        self._socket = socket.create_server((host, 0))
        self._connections: dict[int, socket.socket] = {}
        self._processes: dict[int, RankProcess] = {}
        self._sent = 0  # steps
        # How many steps a follower has finished, whether it is behind, and since when.
        self._behind: dict[int, tuple[tuple[int, bool], float]] = {}
        self._process_id = os.getpid()
        self._ready: set[int] = set()
        self._ended = False
        self._changed = threading.Condition()
        self._sending = threading.Lock()

    @property
    def address(self) -> str:
        """Where followers connect to."""
        host, port, *_ = self._socket.getsockname()
        return f"{host}:{port}"

    def accept(self, processes: dict[int, RankProcess]) -> dict[int, dict[str, Any]]:
        """Wait for all followers; what each says of itself, by rank. RankLost if one does not come."""
        self._processes = processes
        threading.Thread(target=self._beat, name="tiny-llm ranks", daemon=True).start()
        said: dict[int, dict[str, Any]] = {}
        self._socket.settimeout(0.2)
        end = time.monotonic() + HELLO_SECONDS
        while len(said) < self._size - 1:
            self.check()
            for rank, process in processes.items():
                if rank not in said and process.poll() is not None:
                    code = process.returncode
                    raise RankLost(f"rank {rank} has ended before it connected, with exit code {code}")
            if time.monotonic() > end:
                missing = ", ".join(str(rank) for rank in range(1, self._size) if rank not in said)
                raise RankLost(f"rank {missing} has not connected within {HELLO_SECONDS:g} s")
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            greeting = self._greeting(connection)
            number = greeting.get("rank")
            if type(number) is not int or not 0 < number < self._size or number in said:
                connection.close()  # not one of ours
                continue
            said[number] = greeting
            connection.settimeout(START_SECONDS)
            with self._sending:
                self._connections[number] = connection
            threading.Thread(target=self._listen, args=(number, connection), daemon=True).start()
        self._socket.close()
        return said

    def joined(self) -> None:
        """From now on followers are never silent."""
        for connection in self._connections.values():
            connection.settimeout(SILENT_SECONDS)

    def send(self, frame: Frame) -> None:
        """Tell all followers; RankLost once one is lost."""
        with self._sending:
            for rank, connection in self._connections.items():
                self.check()
                try:
                    write_frame(connection, frame)
                except OSError as error:
                    self._lose(rank, f"takes no messages: {error}")
            self._sent += frame.kind is Kind.STEP
        self.check()

    def check(self) -> None:
        """RankLost once a follower is lost."""
        if self.lost is not None:
            raise self.lost

    def fault(self, error: Exception) -> RankLost:
        """Why a step failed: a lost follower, or the error of this process."""
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None, timeout=1)
        self._lose(0, f"has failed in a step: {type(error).__name__}: {error}")
        assert self.lost is not None
        return self.lost

    def wait_until_ready(self) -> None:
        """Until all followers have loaded their share."""
        with self._changed:
            self._changed.wait_for(lambda: self.lost is not None or len(self._ready) == self._size - 1)
        self.check()

    def close(self) -> None:
        """Let the followers end; those that do not are killed. Nothing in a forked child."""
        if os.getpid() != self._process_id:
            return
        self._ended = True
        self._socket.close()
        with self._sending:
            for connection in self._connections.values():
                with suppress(OSError):
                    write_frame(connection, Frame(Kind.END))
        end = time.monotonic() + 3
        for process in self._processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for connection in self._connections.values():
            connection.close()

    def close_at_exit(self) -> None:
        """End the followers; and this process, if MLX waits in it for a lost one for ever."""
        self.close()
        if self.is_stuck and os.getpid() == self._process_id:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(1)

    def _greeting(self, connection: socket.socket) -> dict[str, Any]:
        """What a follower says of itself; nothing from one without the token."""
        connection.settimeout(GREETING_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            frame = read_frame(connection, MAX_HELLO, time.monotonic() + GREETING_SECONDS)
            greeting = frame.json()
        except (OSError, EOFError, ValueError, RecursionError, RankLost):
            return {}
        is_ours = hmac.compare_digest(str(greeting.get("token")).encode(), self.token.encode())
        return greeting if is_ours and frame.kind is Kind.HELLO else {}

    def _listen(self, rank: int, connection: socket.socket) -> None:
        reason = "has closed its connection"
        try:
            while True:
                frame = read_frame(connection)
                if frame.kind is Kind.BEAT:
                    if slowness := self._slowness(rank, frame.numbers()[0]):
                        reason = slowness
                        break
                elif frame.kind is Kind.READY:
                    with self._changed:
                        self._ready.add(rank)
                        self._changed.notify_all()
                elif frame.kind is Kind.FAULT:
                    reason = str(frame.json().get("reason"))
                    break
        except TimeoutError:
            reason = f"has been silent for {SILENT_SECONDS:g} s"
        except (OSError, EOFError, ValueError, RankLost):
            pass
        self._lose(rank, reason)

    def _slowness(self, rank: int, finished: int) -> str | None:
        """Why a follower that has finished so many steps is lost; None if it is not.

        Rank 0 sends a step when the last but one has ended, so two open steps are one that hangs.
        """
        now = time.monotonic()
        is_behind = self._sent - finished > 1
        before, since = self._behind.get(rank, (None, now))
        if before != (finished, is_behind) or finished == self._sent:
            since = now
        self._behind[rank] = (finished, is_behind), since
        limit = SILENT_SECONDS if is_behind else STEP_SECONDS
        return f"has not finished a step within {limit:g} s" if now - since > limit else None

    def _beat(self) -> None:
        while self.lost is None and not self._ended:
            time.sleep(BEAT_SECONDS)
            with self._sending:
                for rank, connection in self._connections.items():
                    if self.lost is None and not self._ended:
                        try:
                            write_frame(connection, Frame(Kind.BEAT))
                        except OSError as error:
                            self._lose(rank, f"takes no messages: {error}")

    def _lose(self, rank: int, reason: str) -> None:
        with self._changed:
            if self.lost is not None or self._ended:
                return
            self.lost = RankLost(f"rank {rank} {reason}")
            self._changed.notify_all()
        for process in self._processes.values():  # which ends what waits for them in MLX
            process.kill()
        threading.Thread(target=self._tell, args=(self.lost,), daemon=True).start()

    def _tell(self, lost: RankLost) -> None:
        self.is_stuck = self.on_lost(lost)
