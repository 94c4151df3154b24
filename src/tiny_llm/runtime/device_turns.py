"""Turns at MLX's default device, which all threads of a process share."""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident

import mlx.core as mx

from ..errors import UnsupportedError


class DeviceTurns:
    """Blocks of code, each on a device. Blocks on one device run at the same time; blocks on another device
    wait, first come, first served. After the last block, MLX's default device is restored."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: deque[object] = deque()
        self._inside: Counter[int] = Counter()  # thread -> number of its open blocks
        self._device: mx.Device | None = None  # of the open blocks
        self._before: mx.Device | None = None  # the default device to restore, where it differs

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
