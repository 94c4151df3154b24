"""Threads that compute on several devices. The second device is a number, as nothing is computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import pytest

from tiny_llm import LLM, UnsupportedError
from tiny_llm.runtime.device import on_device
from tiny_llm.runtime.device_turns import DeviceTurns

HERE, OTHER = mx.Device(mx.cpu), mx.Device(mx.cpu, 1)
WAIT = 30


@pytest.fixture
def turns() -> Iterator[DeviceTurns]:
    before = mx.default_device()
    yield DeviceTurns()
    mx.set_default_device(before)


def test_a_block_keeps_its_device_when_another_of_the_same_ends(turns):
    mx.set_default_device(HERE)
    begun, inside, left = threading.Event(), threading.Barrier(2), threading.Event()

    def first() -> None:
        with turns.on(OTHER):
            begun.set()
            inside.wait(WAIT)
        left.set()

    def second() -> list[mx.Device]:
        assert begun.wait(WAIT)
        with turns.on(OTHER):
            inside.wait(WAIT)
            assert left.wait(WAIT)
            return [mx.default_device()]

    with ThreadPoolExecutor(2) as threads:
        found = threads.submit(second)
        threads.submit(first).result(WAIT)
        assert found.result(WAIT) == [OTHER]
    assert mx.default_device() == HERE


def test_blocks_of_two_devices_never_overlap(turns):
    mx.set_default_device(HERE)
    inside: list[mx.Device] = []

    def block(number: int) -> bool:
        device = (HERE, OTHER)[number % 2]
        with turns.on(device):
            inside.append(device)
            time.sleep(0)  # others run
            right = all(each == device for each in list(inside)) and mx.default_device() == device
            inside.remove(device)
            return right

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(block, range(400)))
    assert mx.default_device() == HERE


def test_blocks_run_first_come_first_served(turns):
    """Otherwise a device that is always in use would block the others forever."""
    order: list[str] = []

    def block(name: str, device: mx.Device) -> None:
        with turns.on(device):
            order.append(name)

    with ThreadPoolExecutor(2) as threads, turns.on(HERE):
        for waiting, (name, device) in enumerate([("other", OTHER), ("late", HERE)], start=1):
            threads.submit(block, name, device)
            while len(turns._waiting) < waiting:
                time.sleep(0.001)
        assert order == []
    assert order == ["other", "late"]


def test_a_block_inside_of_a_block(turns):
    with turns.on(OTHER):
        with turns.on(OTHER):
            pass
        assert mx.default_device() == OTHER
        with pytest.raises(UnsupportedError, match=r"^LLM: device: got .* expected one device at a time"):
            turns.on(HERE).__enter__()
    with turns.on(HERE):
        assert mx.default_device() == HERE


def test_an_exception_in_a_block_releases_the_device(turns):
    mx.set_default_device(HERE)
    with pytest.raises(KeyError), turns.on(OTHER):
        raise KeyError
    assert mx.default_device() == HERE
    with turns.on(HERE):
        pass


def test_a_device_by_its_name(turns):
    mx.set_default_device(OTHER)
    with on_device("cpu"):
        assert mx.default_device() == HERE
    assert mx.default_device() == OTHER


def test_a_model_answers_inside_of_a_block():
    llm = LLM("tiny", device="cpu")
    expected = llm.generate("The fox", max_tokens=3).text
    with on_device("cpu"):
        assert llm.generate("The fox", max_tokens=3).text == expected
    assert llm.generate(["The fox"], max_tokens=3)[0].text == expected
