"""Mutants of the prefill kernel, and the report by which each must be found."""

from .fast import BITS
from .mutant import Mutant

KEYS_READ = "metal::threadgroup_barrier(of_threadgroup);  // the keys have been read"
VALUES_READ = "metal::threadgroup_barrier(of_threadgroup);  // the values have been read"
LOADED = "metal::threadgroup_barrier(of_threadgroup);\n    "
TAKES_PART = "if (takes_part)"
BEGIN = "int begin = of_tile.begin / kKeys * kKeys;"
FIRST_STATE = "state.l = c == 0 ? first_weight(state.m) : 0.0f;"
CAPPED = "score = capped(args.scale * s[k].thread_elements()[i], args);"
MASKED = "masked(score, mask_bias(mask, at_mask + t * args.mask.key, mask_kind));"

PREFILL_MUTANTS = (
    # Synchronisation.
    Mutant("values overwrite keys that are still read", KEYS_READ, "", "write after an unordered read"),
    Mutant("keys overwrite values that are still read", VALUES_READ, "", "write after an unordered read"),
    Mutant(
        "keys are read before they are written",
        LOADED + TAKES_PART + " {",
        TAKES_PART + " {",
        "read after an unordered write",
    ),
    Mutant(
        "values are read before they are written",
        LOADED + TAKES_PART + " add",
        TAKES_PART + " add",
        "read after an unordered write",
    ),
    Mutant(
        "barriers for no memory",
        "= metal::mem_flags::mem_threadgroup;",
        "= metal::mem_flags::mem_none;",
        "data race",
    ),
    Mutant(
        "rows beyond the end leave early",
        "  RowState state;",
        "  if (row >= args.L) return;\n  RowState state;",
        "threadgroup_barrier",
    ),
    Mutant("every row has its own last tile", "begin < of_tile.end", "begin < seen.end", "diverges"),
    Mutant("every row has its own first tile", BEGIN, "int begin = seen.begin / kKeys * kKeys;", "diverges"),
    Mutant("a product in a branch", "if (takes_part) add", "if (alpha != 0.0f) add", "diverges"),
    Mutant(
        "the loads of a SIMD group in a branch",
        "// the keys have been read\n    load",
        "// the keys have been read\n    if (takes_part) load",
    ),
    Mutant("a SIMD group sees what its first row sees", "own_row, own_row + 7,", "own_row, own_row,"),
    Mutant(
        "a SIMD group comes a tile too late", "begin + kKeys > of_fragment.begin", "begin > of_fragment.begin"
    ),
    Mutant(
        "a SIMD group leaves a tile too early", "begin < of_fragment.end", "begin + kKeys < of_fragment.end"
    ),
    # Memory.
    Mutant("keys beyond the end", "is_row = begin + row < count", "is_row = true", "out of bounds"),
    Mutant("columns of padding are loaded", " && (!has_padded_head || column + k < columns);", ";"),
    Mutant(
        "columns of padding are in the query",
        "at < columns ? float(row[at]) : 0.0f, at",
        "true ? float(row[at]) : 0.0f, at",
        "query: read out of bounds",
    ),
    Mutant("columns of padding are stored", "if (column < columns) {", "if (true) {", "output: "),
    Mutant("rows of padding are read", "is_real ? columns : 0;", "columns;", "query: read out of bounds"),
    Mutant("output rows beyond the end", "  if (row >= args.L) return;", "", "out of bounds"),
    Mutant(
        "the tile is loaded in part",
        "i < kRows * kRuns; i += kThreads) {\n    const int row",
        "i < kRows * kRuns - kThreads; i += kThreads) {\n    const int row",
        "uninitialised threadgroup memory",
    ),
    Mutant(
        "a row of the tile is too short",
        "return kHeadSize + 16 / int(sizeof(T));",
        "return kHeadSize - 8;",
        "data race",
    ),
    Mutant("four lanes write one sum", "if (c == 0) lse", "lse", "lse: a place written by two threads"),
    Mutant(
        "a tile of 33 KiB",
        "threadgroup T tile[KEYS",
        "threadgroup T tile[256 * KEYS / KEYS",
        "threadgroup memory",
    ),
    # The softmax.
    Mutant("the maximum of two lanes", "x = metal::max(x, metal::simd_shuffle_xor(x, ushort(1)));", ""),
    Mutant("the sum of two lanes", "x += metal::simd_shuffle_xor(x, ushort(1));", ""),
    Mutant(
        "a row is reduced over the wrong lanes",
        "ushort(8)));\n}\n\ninline float row_sum",
        "ushort(4)));\n}\n\ninline float row_sum",
    ),
    Mutant("the sum is not rescaled", "row.l *= alpha;", ""),
    Mutant("the output is not rescaled", "set_fragment(o[e], alpha * o[e]", "set_fragment(o[e], 1.0f * o[e]"),
    Mutant("the maximum is not in the LSE", "state.m + metal::log(l)", "metal::log(l)"),
    Mutant("all lanes of a row count the sink", FIRST_STATE, "state.l = first_weight(state.m);"),
    Mutant("the sink is a maximum without a weight", FIRST_STATE, "state.l = 0.0f;"),
    Mutant("rows of padding count the sink", "is_real ? place.sink", "true ? place.sink"),
    # Which key, which column.
    Mutant(
        "keys are not transposed",
        "(k * 8 + column) * kStride + e * 8 + row",
        "(k * 8 + row) * kStride + e * 8 + column",
    ),
    Mutant("the second key of a lane", "tile[at + kStride]", "tile[at]"),
    Mutant("the second column of a lane", "tile[at + 1]", "tile[at]"),
    Mutant("keys are counted without the lane", "begin + k * 8 + column + i", "begin + k * 8 + i"),
    Mutant("one tile too few", "begin < of_tile.end", "begin < of_tile.end - kKeys"),
    Mutant("a tile too late", BEGIN, "int begin = (of_tile.begin + kKeys - 1) / kKeys * kKeys;"),
    Mutant("tiles begin where the window begins", BEGIN, "int begin = of_tile.begin;", BITS),
    Mutant(
        "the window begins before the first key",
        "metal::max(0, first_row + shift - args.left)",
        "metal::max(-64, first_row + shift - args.left)",
        "key: read out of bounds",
    ),
    Mutant("the window has no left edge", " && (!has_window || t >= seen.begin)", ""),
    Mutant("keys beyond the end are visible", "t < seen.end && ", ""),
    Mutant(
        "the tile sees what its first row sees",
        "seen_keys(first_row, first_row + kRows - 1,",
        "seen_keys(first_row, first_row,",
    ),
    Mutant("rows of the query are dense", "row * args.query.row", "row * columns"),
    Mutant("rows of the tile are dense", "(begin + row) * row_stride", "(begin + row) * columns"),
    Mutant("keys are read as values", "place.value, args.value.row", "place.key, args.value.row"),
    Mutant(
        "keys end where the tensor ends",
        "place.key, args.key.row, begin, place.n_k",
        "place.key, args.key.row, begin, args.S",
        "out of bounds",
    ),
    Mutant(
        "values end where the tensor ends",
        "place.value, args.value.row, begin, place.n_k",
        "place.value, args.value.row, begin, args.S",
    ),
    # Values that are not finite.
    Mutant("a hidden value of NaN is multiplied by 0", "if (hides) {", "if (false) {"),
    Mutant("only a mask hides values", "(has_window && (begin < of_all", "(false && (begin < of_all"),
    Mutant("the window hides no value on the left", "begin < of_all.begin || ", ""),
    Mutant(
        "the window hides no value on the right",
        "begin < of_all.begin || begin + kKeys > of_all.end",
        "begin < of_all.begin",
    ),
    Mutant("a visible value of NaN is lost", "if (hides && takes_part", "if (false && takes_part"),
    Mutant("a SIMD group asks itself", "others[0] + others[1] + others[2] + others[3]", "others[simd_group]"),
    Mutant("a row gets values before its window", "metal::max(begin, seen.begin)", "begin"),
    Mutant("a row gets values beyond its window", "metal::min(begin + kKeys, seen.end)", "begin + kKeys"),
    Mutant("a row gets values that the mask hides", "mask_kind) == -INFINITY", "mask_kind) == INFINITY"),
    Mutant(
        "columns of padding are values",
        "at < columns ? float(row[at]) : 0.0f;\n        if",
        "float(row[at]);\n        if",
        "out of bounds",
    ),
    Mutant(
        "the mask of values is dense",
        "bias(in.mask, at_mask + t * args.mask.key",
        "bias(in.mask, at_mask + t",
    ),
    # The mask and the soft cap.
    Mutant("the mask is ignored", "if (mask_kind != kNoMask) {", "if (false) {"),
    Mutant("the row of the mask is ignored", " + row * args.mask.row", ""),
    Mutant("the mask is dense", "bias(mask, at_mask + t * args.mask.key", "bias(mask, at_mask + t"),
    Mutant(
        "the score of a hidden key is added to -inf",
        "bias == -INFINITY ? -INFINITY : score + bias",
        "score + bias",
    ),
    Mutant("no scale", CAPPED, "score = capped(s[k].thread_elements()[i], args);"),
    Mutant(
        "the soft cap comes before the scale",
        CAPPED,
        "score = args.scale * capped(s[k].thread_elements()[i], args);",
    ),
    Mutant("the mask is capped, too", MASKED, f"capped({MASKED[:-1]}, args);"),
)
