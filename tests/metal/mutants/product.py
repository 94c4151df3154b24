"""Mutants of the quantized product, and the report by which each must be found."""

from .mutant import Mutant

LOADED = "metal::threadgroup_barrier(of_threadgroup);\n    if (!has_rows)"
READ = "metal::threadgroup_barrier(of_threadgroup);  // the chunk before has been read"

PRODUCT_MUTANTS = (
    # Decoding a word.
    Mutant(
        "the highest bits of a word come first", "word >> (i * kBits)", "word >> (32 - kBits - i * kBits)"
    ),
    Mutant("the lowest bit of a number is lost", "(1u << kBits) - 1", "(1u << kBits) - 2"),
    Mutant("no bias", "* scale + bias", "* scale"),
    Mutant("every chunk is a group", "+ (chunk >> args.group_shift)", "+ chunk", "out of bounds"),
    Mutant(
        "a row has as many groups as chunks", "(args.K / kChunk >> args.group_shift)", "(args.K / kChunk)"
    ),
    # A few rows: memory.
    Mutant("rows beyond the end", "if (m < M) {", "if (true) {", "rows: read out of bounds"),
    Mutant(
        "words beyond the end",
        "metal::min(first + o, N - 1);",
        "first + o;",
        "read out of bounds",
    ),
    Mutant("outputs beyond the end", "&& first + o < N) product", ") product", "product: "),
    Mutant("rows of the product beyond the end", "lane == 0 && m < M", "lane == 0", "product: write out of"),
    Mutant("all lanes write", "if (lane == 0 && m", "if (m", "product: a place written by two threads"),
    Mutant(
        "a sum of some lanes",
        "metal::simd_sum(sum[m][o])",
        "lane < 9 ? metal::simd_sum(sum[m][o]) : 0.0f",
        "diverges",
    ),
    # A few rows: arithmetic.
    Mutant("the sum of one lane", "metal::simd_sum(sum[m][o])", "sum[m][o]"),
    Mutant("lanes take some words twice", "j += 32", "j += 31"),
    Mutant("only the first word of a lane", "j < K / kPerWord; j", "j < 32 && j < K / kPerWord; j"),
    Mutant("all words of a lane multiply the same numbers", "* K + j * kPerWord;", "* K + lane * kPerWord;"),
    Mutant(
        "the group of another word", "scales[group_of(args, n, j / kBits)]", "scales[group_of(args, n, 0)]"
    ),
    Mutant(
        "all outputs have one bias",
        "biases[group_of(args, n, j / kBits)]",
        "biases[group_of(args, first, j / kBits)]",
    ),
    # Many rows: synchronisation.
    Mutant(
        "the tiles are read before they are written",
        LOADED,
        "if (!has_rows)",
        "read after an unordered write",
    ),
    Mutant("the tiles are filled while they are read", READ, "", "write after an unordered read"),
    Mutant(
        "barriers for no memory",
        "= metal::mem_flags::mem_threadgroup;",
        "= metal::mem_flags::mem_none;",
        "data race",
    ),
    Mutant(
        "SIMD groups without rows leave",
        "if (!has_rows) continue;",
        "if (!has_rows) break;",
        "threadgroup_barrier",
    ),
    Mutant(
        "lanes without a row do not multiply",
        "if (!has_rows) continue;",
        "if (r >= args.M - first_row - down) continue;",
        "diverges",
    ),
    # Many rows: memory.
    Mutant("rows beyond the end of many", "first + row < args.M", "true", "rows: read out of bounds"),
    Mutant(
        "outputs beyond the end are unpacked",
        "metal::min(first + output, args.N - 1)",
        "first + output",
        "out of bounds",
    ),
    Mutant("columns of the product beyond the end", "m < args.M && n < args.N", "m < args.M", "product: "),
    Mutant(
        "rows of many of the product beyond the end",
        "m < args.M && n < args.N",
        "n < args.N",
        "product: write out of",
    ),
    Mutant(
        "the rows are loaded in part",
        "i < kTileRows * kChunk;",
        "i < kTileRows * kChunk - 128;",
        "uninitialised",
    ),
    Mutant(
        "the weights are unpacked in part",
        "i < kTileOutputs * kBits;",
        "i < kTileOutputs * kBits - 128;",
        "uninitialised",
    ),
    Mutant("a row of a tile is too short", "kChunk + 16 / int(sizeof(T))", "kChunk - 4", "data race"),
    Mutant(
        "two SIMD groups have the same outputs",
        "int(simd_group) % 2 * 8 * kAcross",
        "0",
        "product: a place written by two threads",
    ),
    Mutant("33 KiB", "weight_tile[kTileOutputs", "weight_tile[4 * kTileOutputs", "of threadgroup memory"),
    # Many rows: arithmetic.
    Mutant(
        "weights are not transposed",
        "(across + a * 8 + c) * chunk_stride<float>() + k + r",
        "(across + a * 8 + r) * chunk_stride<float>() + k + c",
    ),
    Mutant("the second number of a lane", "row_tile[at + 1]", "row_tile[at]"),
    Mutant("the chunks before are forgotten", "w[a], sum[d][a]);", "w[a], w[a]);"),
    Mutant(
        "one chunk too few", "chunk = 0; chunk < args.K / kChunk;", "chunk = 0; chunk < args.K / kChunk - 1;"
    ),
    Mutant(
        "SIMD groups with some rows count as empty",
        "first_row + down < args.M;",
        "first_row + down + 16 <= args.M;",
    ),
)
