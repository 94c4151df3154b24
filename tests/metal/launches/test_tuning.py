"""The number of keys per split on each GPU, and the resulting number of splits."""

import ctypes

import pytest

from ..attention.arguments import FastArguments
from ..attention.run import host

GENERATIONS = (13, 14, 15, 16)
# By the last letter of the architecture: base, Pro and Max, Ultra.
KEYS = {"g": 512, "s": 256, "d": 128}
UNKNOWN = (
    "applegpu_g12g",
    "applegpu_g13s_b1",
    "g14d applegpu",
    "applegpu_g17s",
    "applegpu_g16d",
    "applegpu_g13p",
    "applegpu_g13",
    "",
    "g",
)


CHIPS = [(n, letter) for n in GENERATIONS for letter in KEYS if (n, letter) != (16, "d")]


@pytest.mark.parametrize(("generation", "letter"), CHIPS)
def test_larger_gpus_have_shorter_splits(generation, letter):
    assert host().keys_per_split(f"applegpu_g{generation}{letter}".encode()) == KEYS[letter]


@pytest.mark.parametrize("architecture", UNKNOWN)
def test_unknown_gpus_split_like_the_smallest(architecture):
    assert host().keys_per_split(architecture.encode()) == 512


@pytest.mark.parametrize("keys", [1, 24, 128, 256, 512, 2**30])
def test_a_split_is_never_empty_and_never_too_long(keys):
    sizes = (0, 1, keys - 1, keys, keys + 1, 2 * keys, 2 * keys + 1, 7 * keys - 1)
    for S in (*(min(size, 2**30 - 1) for size in sizes), 2**30 - 1):
        splits = host().split_count(ctypes.byref(FastArguments(S=S, keys_per_split=keys)))
        assert splits == max(1, -(-S // keys))
