"""The rotation table of a model is as long as the positions in use, with the same values at every length."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.positional_encoding import RoPE, RotationTable

from ..support.cases import normal

DIMS, POSITIONS, BASE = 128, 2**18, 1e6


def rows(rope: RoPE, positions: int) -> int:
    return rope.table(0, positions).cos.shape[0]


@pytest.mark.parametrize(
    ("used", "made"), [(1, 256), (256, 256), (257, 512), (512, 512), (5000, 8192), (9001, 9001)]
)
def test_a_table_has_the_next_power_of_two_or_all_positions(used, made):
    assert rows(RoPE(64, 9001), used) == made


def test_a_model_for_long_texts_takes_memory_for_those_that_it_reads():
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    rope = RoPE(DIMS, POSITIONS, BASE)
    mx.eval(rope(normal(1, 100, 1, DIMS)), rope.heads_first(normal(1, 1, 1, DIMS), 1000))
    assert mx.get_peak_memory() - before < 8 * 2**20
    assert rows(rope, 1) == 1024


def test_a_table_keeps_its_bits_when_it_grows():
    rope, whole = RoPE(DIMS, 5000, BASE), RotationTable(DIMS, 5000, BASE)
    for used in (1, 300, 3000, 5000):
        table = rope.table(used - 1, 1)
        length = table.cos.shape[0]
        assert np.array_equal(np.array(table.cos), np.array(whole.cos[:length]))
        assert np.array_equal(np.array(table.sin), np.array(whole.sin[:length]))


def test_the_table_covers_the_longest_row_of_a_batch():
    rope = RoPE(64, 4096)
    x = normal(2, 3, 1, 64)
    together = rope.heads_first(x, [5, 2000])
    for row, start in enumerate((5, 2000)):
        alone = RoPE(64, 4096, traditional=False).heads_first(x[row : row + 1], start)
        assert mx.array_equal(together[row : row + 1], alone).item()


def test_a_position_after_the_last_is_refused():
    rope = RoPE(64, 300)
    with pytest.raises(ValueError, match=r"got 299 for 2 tokens, expected .* 0\.\.299"):
        mx.eval(rope.heads_first(normal(1, 2, 1, 64), 299))


def test_threads_that_grow_a_table_at_the_same_time_get_complete_tables():
    rope = RoPE(DIMS, 2**15, BASE)
    whole = RotationTable(DIMS, 2**15, BASE)
    start = Barrier(4)

    def use(thread: int) -> bool:
        start.wait()
        same = True
        for used in range(1 + thread, 2**15, 1777):
            table = rope.table(used, 1)
            same &= table.cos.shape[0] > used and table.sin.shape == table.cos.shape
            same &= np.array_equal(np.array(table.sin)[used], np.array(whole.sin)[used])
        return same

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4)))


def test_later_layers_share_the_grown_table():
    first = RoPE(DIMS, 2**14, BASE)
    assert rows(first, 3000) == 4096
    assert RoPE(DIMS, 2**14, BASE).table(0, 1) is first.table(0, 1)
