"""Wrong forms of the fast kernel for a few query rows and of the merge, and by what each must be found."""

from .mutants import Mutant

BARRIER = "  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);"
MERGE_SUM = "exp(lses[z * rows + at_row] - base) * parts"

DECODE_MUTANTS = (
    Mutant("the parts are read before they are there", BARRIER, "", "data race"),
    Mutant(
        "rows without keys leave early",
        "  float q[kElements]",
        "  if (end < 1) return;\n  float q[kElements]",
    ),
    Mutant(
        "a sum of some lanes", "metal::simd_sum(part)", "lane < 8 ? metal::simd_sum(part) : 0.0f", "diverges"
    ),
    Mutant("keys beyond the end", "(S - L) + 1 : S;", "(S - L) + 1 : S + 1;", "out of bounds"),
    Mutant("columns beyond the end", "if (e < E) o_of", "if (e <= E) o_of", "data race on o"),
    Mutant(
        "all SIMD groups write the sum",
        "me == 0 && lane == 0",
        "lane == 0",
        "lse: a place written by two threads",
    ),
    Mutant(
        "all SIMD groups write all columns",
        "for (int e = me * 32 + lane;",
        "for (int e = lane;",
        "output: a place",
    ),
    Mutant(
        "all splits write one part",
        "int64_t(group.z) * args.N * L + at_row",
        "at_row",
        "written by two threads",
    ),
    Mutant("a SIMD group takes all keys", "j = first + me;", "j = first;"),
    Mutant("a split begins at the first key", "j = first + me;", "j = me;"),
    Mutant(
        "a SIMD group is left out",
        "g = 0; g < kDecodeSimdGroups; g++) sum",
        "g = 1; g < kDecodeSimdGroups; g++) sum",
    ),
    Mutant(
        "the maxima of the SIMD groups are taken as equal", "sum += metal::exp(m_of[g] - base) *", "sum +="
    ),
    Mutant("the output is not corrected", "o[i] = alpha * o[i] +", "o[i] = o[i] +"),
    Mutant(
        "a split is left out", "for (int z = 0; z < splits; z++) sum", "for (int z = 1; z < splits; z++) sum"
    ),
    Mutant("the parts weigh the same", MERGE_SUM, "exp(0.0f) * parts"),
    Mutant("the maximum is not in the merged LSE", "= base + metal::log(sum)", "= metal::log(sum)"),
)
