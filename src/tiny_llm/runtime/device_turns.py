"""Turns at MLX's default device, which is one for all threads of a process."""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident

import mlx.core as mx

from ..errors import UnsupportedError


class DeviceTurns:
    """Blocks of code, each on a device: those of one device run at once, those of another wait, first come
    first served. The default device is what it was before when the last of them has left."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: deque[object] = deque()
        self._inside: Counter[int] = Counter()  # blocks of each thread
        self._device: mx.Device | None = None  # of all that are inside
        self._before: mx.Device | None = None  # the default device, where it was another one

    @contextmanager
    def on(self, device: mx.Device) -> Iterator[None]:
        """A block that computes on this device."""
        thread = get_ident()
        with self._changed:
            if self._inside[thread]:
                self._check_nested(device)
            else:
                self._wait(device)
            self._inside[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= Counter([thread])
                if not self._inside:
                    self._leave()
                self._changed.notify_all()

    def _wait(self, device: mx.Device) -> None:
        ticket = object()
        self._waiting.append(ticket)
        try:
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._is_free(device))
            self._enter(device)
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()

    def _is_free(self, device: mx.Device) -> bool:
        return self._device is None or self._device == device

    def _enter(self, device: mx.Device) -> None:
        before = mx.default_device()
        if self._device is None and before != device:
            mx.set_default_device(device)
            self._before = before
        self._device = device

    def _leave(self) -> None:
        if self._before is not None:
            mx.set_default_device(self._before)
        self._device = self._before = None

    def _check_nested(self, device: mx.Device) -> None:
        if self._device != device:
            got = f"{device} inside of a block on {self._device}"
            raise UnsupportedError("LLM", "device", got, "one device at a time in a thread")
