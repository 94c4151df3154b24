"""Mistakes in the readable schedules of FlashAttention. tests/course finds them."""

from .mistake import Mistake

SCHEDULES = "tiny_llm/course/schedules.py"
TILES = "tiny_llm/course/score_tiles.py"

MISTAKES = (
    Mistake(
        "only the first tile of keys is read",
        TILES,
        "return bool(keys.start <= last and keys.stop - 1 >= first)",
        "return bool(keys.start <= last and keys.stop - 1 >= first) and keys.start == 0",
        "test_several_tiles_both_ways",
    ),
    Mistake(
        "as many keys as queries",
        TILES,
        "key_tiles=_cut(S, tile[1])",
        "key_tiles=_cut(min(L, S), tile[1])",
        "test_queries_and_keys_of_different_numbers",
    ),
    Mistake(
        "causal is aligned at the upper left",
        TILES,
        "return self.key.shape[-2] - self.query.shape[-2]",
        "return 0",
        "test_queries_and_keys_of_different_numbers",
    ),
    Mistake(
        "the last tile is dropped unless it is full",
        TILES,
        "for start in range(0, length, size)]",
        "for start in range(0, length - size + 1, size)]",
        "test_tails_that_do_not_fill_a_tile",
    ),
    Mistake(
        "-inf - -inf where nothing is visible yet",
        SCHEDULES,
        "subtrahend = mx.where(mx.isneginf(m), 0, m)",
        "subtrahend = m",
        "test_the_first_tiles_are_hidden",
    ),
    Mistake(
        "the sums are not rescaled",
        SCHEDULES,
        "alpha * state.l + p.sum(axis=-1, keepdims=True), alpha * state.acc + p @ value",
        "state.l + p.sum(axis=-1, keepdims=True), state.acc + p @ value",
        "test_a_later_maximum_rescales_the_sums",
    ),
    Mistake(
        "only the denominator is rescaled",
        SCHEDULES,
        "alpha * state.acc + p @ value",
        "state.acc + p @ value",
        "test_a_later_maximum_rescales_the_sums",
    ),
    Mistake(
        "the maximum of the tile, not of all tiles",
        SCHEDULES,
        "mx.maximum(state.m, scores.max(axis=-1, keepdims=True))",
        "scores.max(axis=-1, keepdims=True)",
        "test_large_scores",
    ),
    Mistake(
        "0 / 0 in a row without keys",
        SCHEDULES,
        "total = mx.where(empty, 1, state.l)",
        "total = state.l",
        "test_gradients_of_rows_without_keys_are_zero_and_finite",
    ),
    Mistake(
        "a row without keys is the mean of all values: a sentinel in the place of -inf",
        TILES,
        "return mx.where(visible, scores, -mx.inf)",
        "return mx.where(visible, scores, -1e10)",
        "test_rows_without_keys",
    ),
    Mistake(
        "NaN is hidden",
        SCHEDULES,
        "out = mx.where(empty, 0, state.acc / total)",
        "out = mx.nan_to_num(mx.where(empty, 0, state.acc / total))",
        "test_a_row_of_nan_scores_is_nan_not_zero",
    ),
    Mistake(
        "a mask is added where it should select",
        TILES,
        "scores = mx.where(mx.isneginf(tile), -mx.inf, scores + tile.astype(mx.float32))",
        "scores = scores + tile.astype(mx.float32)",
        "test_nan_of_a_hidden_key_has_no_effect",
    ),
    Mistake(
        "the tile on the diagonal is skipped",
        TILES,
        "return bool(keys.start <= last and",
        "return bool(keys.start < last and",
        "test_tiles_with_one_visible_key",
    ),
    Mistake(
        "the first tile of a window is skipped",
        TILES,
        "keys.stop - 1 >= first)",
        "keys.stop - 1 > first)",
        "test_tiles_with_one_visible_key",
    ),
    Mistake(
        "a window sees one key more",
        TILES,
        "(window // 2, (window - 1) // 2)",
        "(window // 2, window // 2)",
        "test_windows",
    ),
    Mistake(
        "tiles are multiplied in float16",
        TILES,
        "query=query.astype(mx.float32),\n            key=key.astype(mx.float32),",
        "query=query,\n            key=key,",
        "test_half_types_accumulate_in_float32",
    ),
)
