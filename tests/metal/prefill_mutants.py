"""Wrong forms of the fast kernel for many query rows, and by what each must be found."""

from .mutants import NUMBERS, Mutant

KEYS_READ = "metal::threadgroup_barrier(of_threadgroup);  // the keys have been read"
VALUES_READ = "metal::threadgroup_barrier(of_threadgroup);  // the values have been read"
LOADED = "metal::threadgroup_barrier(of_threadgroup);\n    "

PREFILL_MUTANTS = (
    # Synchronisation.
    Mutant("values overwrite keys that are still read", KEYS_READ, "", "write after an unordered read"),
    Mutant("keys overwrite values that are still read", VALUES_READ, "", "write after an unordered read"),
    Mutant(
        "keys are read before they are there",
        LOADED + "multiply",
        "multiply",
        "read after an unordered write",
    ),
    Mutant("values are read before they are there", LOADED + "add", "add", "read after an unordered write"),
    Mutant(
        "barriers for no memory",
        "= metal::mem_flags::mem_threadgroup;",
        "= metal::mem_flags::mem_none;",
        "data race",
    ),
    Mutant(
        "rows beyond the end leave early",
        "  RowState state;",
        "  if (row >= L) return;\n  RowState state;",
        "threadgroup_barrier",
    ),
    Mutant("every row has its own last tile", "begin < last_end", "begin < end", "diverges"),
    Mutant("a product in a branch", "    add_values<", "    if (alpha != 0.0f) add_values<", "diverges"),
    # Memory.
    Mutant("keys beyond the end", "begin + row < count", "true", "out of bounds"),
    Mutant(
        "query rows beyond the end",
        "row < L ? float(pair[0])",
        "true ? float(pair[0])",
        "query: read out of bounds",
    ),
    Mutant("output rows beyond the end", "  if (row >= L) return;", "", "out of bounds"),
    Mutant(
        "the tile is loaded in part",
        "i < rows * E;",
        "i < rows * E - threads;",
        "uninitialised threadgroup memory",
    ),
    Mutant("a row of the tile is too short", "return E + 16 / int(sizeof(T));", "return E - 8;", "data race"),
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
        "a row lies in other lanes",
        "ushort(8)));\n}\n\ninline float row_sum",
        "ushort(4)));\n}\n\ninline float row_sum",
    ),
    Mutant("no care for a maximum of -inf", "m == -INFINITY ? 0.0f : m;", "m;"),
    Mutant("the sum is not corrected", "row.l *= alpha;", ""),
    Mutant(
        "the output is not corrected", "set_fragment(o[e], alpha * o[e]", "set_fragment(o[e], 1.0f * o[e]"
    ),
    Mutant("a row without keys divides by zero", "l == 0.0f ? 0.0f : ", ""),
    Mutant("the maximum is not in the LSE", "state.m + metal::log(l)", "metal::log(l)"),
    # Which key, which column.
    Mutant(
        "keys are not transposed",
        "(k * 8 + column) * kStride + e * 8 + row",
        "(k * 8 + row) * kStride + e * 8 + column",
    ),
    Mutant("the second key of a lane", "tile[at + kStride]", "tile[at]"),
    Mutant("the second column of a lane", "tile[at + 1]", "tile[at]"),
    Mutant("keys are counted without the lane", "begin + k * 8 + column + i", "begin + k * 8 + i"),
    Mutant("L == S is taken for granted", "? row + (S - L) + 1", "? row + 1"),
    Mutant("one tile too few", "last_row + (S - L) + 1", "last_row + (S - L) + 1 - kKeys"),
    Mutant(
        "the heads of a group lie apart",
        "(n / args.group) * S * E",
        "(n % (args.heads / args.group)) * S * E",
    ),
    Mutant("the mask is ignored", "args.mask_kind != kNoMask", "false", NUMBERS),
)
