"""Mutants of the readable kernel, and the report by which each must be found."""

from .mutant import Mutant

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
LOAD = "  if (row < L) {\n    for (int e = lane;"
READABLE_MUTANTS = (
    # Synchronisation.
    Mutant("no barrier after the load", BARRIER, "", "data race on q"),
    Mutant("a barrier for no memory", BARRIER, "threadgroup_barrier(mem_flags::mem_none);", "data race on q"),
    Mutant(
        "a barrier for the other memory",
        BARRIER,
        "threadgroup_barrier(mem_flags::mem_device);",
        "data race on q",
    ),
    Mutant(
        "rows beyond the end skip the barrier",
        LOAD,
        "  if (row >= L) return;\n" + LOAD,
        "threadgroup_barrier",
    ),
    Mutant("a barrier in a branch", BARRIER, f"if (row < L) {BARRIER}", "threadgroup_barrier"),
    Mutant(
        "a barrier inside the loop",
        "    float s = -INFINITY;",
        f"    {BARRIER}\n    float s = -INFINITY;",
        "barrier",
    ),
    Mutant(
        "lanes without a key go on",
        "    float s = -INFINITY;",
        "    if (j >= end) continue;\n    float s = -INFINITY;",
        "SIMD group diverges",
    ),
    Mutant("a reduction in a branch", "simd_sum(p)", "(j < end ? simd_sum(p) : 0.0f)", "SIMD group diverges"),
    Mutant("a broadcast in a branch", "k < keys; k++", "k < keys - (lane & 1); k++", "SIMD group diverges"),
    # Memory.
    Mutant(
        "query rows beyond the end", LOAD, LOAD.replace("row < L", "row <= L"), "query: read out of bounds"
    ),
    Mutant("output rows beyond the end", "if (row >= L) return;", "", "out of bounds"),
    Mutant("keys beyond the end", "if (j < end) {", "if (true) {", "key: read out of bounds"),
    Mutant("a hidden value takes part", "if (simd_broadcast(s, ushort(k)) == -INFINITY) continue;", ""),
    Mutant("mask heads of all batches in one", "(n % args.heads) *", "n *", "mask: read out of bounds"),
    Mutant(
        "the output is not cleared",
        "      o[r][e] = 0.0f;\n",
        "",
        "uninitialised threadgroup memory: read of o",
    ),
    Mutant(
        "rows and columns of the tile are swapped",
        "      o[r][e] = 0.0f;",
        "      o[e][r] = 0.0f;",
        "index out of bounds",
    ),
    Mutant("a column of the next row", "dot += q[r][e]", "dot += q[r][e + 1]", "index out of bounds"),
    Mutant("all rows share one", "o[r][e] *= alpha", "o[0][e] *= alpha", "data race on o"),
    Mutant("every lane writes the sum", "if (lane == 0) lse", "lse", "lse: a place written by two threads"),
    Mutant(
        "every lane writes all columns",
        "for (int e = lane; e < E; e += kLanes) output",
        "for (int e = 0; e < E; e++) output",
        "output: a place written by two threads",
    ),
    Mutant(
        "33 KiB",
        "threadgroup float o[32][128];",
        "threadgroup float o[32][128];\n  threadgroup float more[256];\n  more[simd_lane] = 0.0f;",
        "of threadgroup memory",
    ),
    Mutant(
        "the input is written",
        "  if (row >= L) return;",
        "  query[at_row] = 0;\n  if (row >= L) return;",
        "does not compile",
    ),
    # The softmax.
    Mutant("the sum is not rescaled", "l = alpha * l +", "l = l +"),
    Mutant("the output is not rescaled", "o[r][e] *= alpha", "o[r][e] *= 1.0f"),
    Mutant("a maximum of -inf is subtracted", "m_new == -INFINITY ? 0.0f : m_new", "m_new"),
    Mutant("a row without keys divides by zero", "l == 0.0f ? 0.0f : ", ""),
    Mutant("the maximum of the tile only", "max(m, simd_max(s))", "simd_max(s)"),
    Mutant("the maximum is forgotten", "    m = m_new;\n", ""),
    Mutant("a maximum of one lane", "simd_max(s)", "s"),
    Mutant("another base of the exponential", "exp(s - base)", "exp2(s - base)"),
    Mutant("the maximum is not in the LSE", "m + log(l)", "log(l)"),
    Mutant("no scale", "s = args.scale * dot", "s = dot"),
    # Which key, which column.
    Mutant("one weight for all keys", "simd_broadcast(p, ushort(k))", "simd_broadcast(p, ushort(0))"),
    Mutant("L == S is assumed", "(S - L) + 1", "1"),
    Mutant("the row does not see its own key", "(S - L) + 1", "(S - L)"),
    Mutant("the row sees the next key, too", "(S - L) + 1", "(S - L) + 2"),
    Mutant("causality is forgotten", "args.causal ?", "false ?"),
    Mutant("only the first tile", "begin < end;", "begin < min(end, kLanes);"),
    Mutant("one tile too few", "begin < end;", "begin + kLanes < end;"),
    Mutant(
        "the heads of a group lie apart",
        "(n / args.group) * S * E",
        "(n % (args.heads / args.group)) * S * E",
    ),
    Mutant("every head has its own key head", "(n / args.group) * S * E", "(n) * S * E", "out of bounds"),
    Mutant("the axes of the grid are swapped", "int n = int(tile.x)", "int n = int(tile.y)"),
    Mutant(
        "half of the columns",
        "for (int e = lane; e < E; e += kLanes) output",
        "for (int e = lane; e < E / 2; e += kLanes) output",
    ),
    # The mask.
    Mutant("the bool mask is inverted", "mask[at] ? 0.0f : -INFINITY", "mask[at] ? -INFINITY : 0.0f"),
    Mutant("the mask is ignored", "args.mask_kind != kNoMask", "false"),
    Mutant("the batch entry of the mask is ignored", "(n / args.heads) * args.mask_batch_stride +", ""),
    Mutant("the row of the mask is ignored", "+ row * args.mask_row_stride", ""),
    Mutant("the mask is dense", "j * args.mask_key_stride", "j", "mask: read out of bounds"),
    Mutant("a half mask is read as bfloat", "case kHalfMask:", "case kHalfMask + 100:"),
    Mutant(
        "the score of a hidden key is added to -inf",
        "bias == -INFINITY ? -INFINITY : score + bias",
        "score + bias",
    ),
)
