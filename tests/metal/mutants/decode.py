"""Mutants of the decode and merge kernels, and the report by which each must be found."""

from .mutant import Mutant

FIRST_MAXIMUM = "  float m = -INFINITY;\n  float l = 0.0f;\n  for (int t"
MASKED = "masked(score, mask_bias(in.mask, at_mask + j * args.mask.key, mask_kind))"
BARRIER = "  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);"

DECODE_MUTANTS = (
    # Synchronisation and memory.
    Mutant("the parts are read before they are written", BARRIER, "", "data race"),
    Mutant("keys of the next split", "first + args.keys_per_split);", "first + args.keys_per_split + 1);"),
    Mutant(
        "columns beyond the end", "if (is_column<kHeadSize>(e, E)) o_of", "if (e <= E) o_of", "data race on o"
    ),
    Mutant(
        "query columns beyond the end",
        "is_column<kHeadSize>(e, E) ? args.scale",
        "e <= E ? args.scale",
        "query: read out of bounds",
    ),
    Mutant(
        "all SIMD groups write the sum",
        "me != 0 || lane != 0",
        "lane != 0",
        "lse: a place written by two threads",
    ),
    Mutant(
        "all SIMD groups write all columns",
        "for (int e = me * 32 + lane;",
        "for (int e = lane;",
        "output: a place",
    ),
    Mutant(
        "all splits write one part", "(int64_t(split) * args.N + n)", "int64_t(n)", "written by two threads"
    ),
    Mutant("rows without keys leave early", FIRST_MAXIMUM, "  if (end <= begin) return;\n" + FIRST_MAXIMUM),
    Mutant(
        "a sum of some lanes",
        "metal::simd_sum(part)",
        "(lane < 8 ? metal::simd_sum(part) : 0.0f)",
        "diverges",
    ),
    Mutant(
        "keys beyond the end are read",
        "metal::min(t + k * kDecodeSimdGroups, end - 1)",
        "t + k * kDecodeSimdGroups",
        "key: read out of bounds",
    ),
    # Which key.
    Mutant(
        "the last key counts more than once", "t + k * kDecodeSimdGroups < end ? score : -INFINITY", "score"
    ),
    Mutant("the next keys are the same", "t += kDecodeSimdGroups * kDecodeKeys", "t += kDecodeSimdGroups"),
    Mutant("SIMD groups take the same keys", "int t = begin + me;", "int t = begin;"),
    Mutant(
        "a SIMD group takes neighbouring keys",
        "place.value + (t + k * kDecodeSimdGroups)",
        "place.value + (t + k)",
    ),
    Mutant("rows of the keys are dense", "j * args.key.row", "j * E"),
    Mutant("rows of the values are dense", "* args.value.row;", "* E;"),
    Mutant("the mask is dense", "at_mask + j * args.mask.key", "at_mask + j"),
    Mutant(
        "the score of a hidden key is added to -inf",
        "bias == -INFINITY ? -INFINITY : score + bias",
        "score + bias",
    ),
    Mutant("the value of a hidden key is read", "if (s[k] == -INFINITY) continue;", "if (false) continue;"),
    Mutant("the mask is capped, too", MASKED, f"capped({MASKED}, args)"),
    Mutant("a split begins at the first key", "metal::max(seen.begin, first)", "seen.begin"),
    Mutant("the window is not the beginning", "metal::max(seen.begin, first)", "first"),
    Mutant("rows of the query are dense", "row * args.query.row", "row * E"),
    Mutant("the row of the mask is ignored", " + row * args.mask.row", ""),
    Mutant("the mask is ignored", "mask_kind != kNoMask", "false"),
    # The softmax.
    Mutant("the output is not rescaled", "o[i] *= alpha;", ""),
    Mutant("the sum is not rescaled", "l *= alpha;", ""),
    Mutant("the maximum is forgotten", "    m = top;\n", ""),
    Mutant(
        "a SIMD group is left out",
        "g = 0; g < kDecodeSimdGroups; g++) sum",
        "g = 1; g < kDecodeSimdGroups; g++) sum",
    ),
    Mutant(
        "the maxima of the SIMD groups are taken as equal", "sum += metal::exp(m_of[g] - base) *", "sum +="
    ),
    Mutant("every split counts the sink", "split == 0 && row < place.n_q", "row < place.n_q"),
    Mutant("rows of padding count the sink", "split == 0 && row < place.n_q", "split == 0"),
    Mutant(
        "the sink counts twice",
        "float sum = metal::exp(sink - base);",
        "float sum = 2.0f * metal::exp(sink - base);",
    ),
    Mutant("the sink is not in the sum", "float sum = metal::exp(sink - base);", "float sum = 0.0f;"),
    Mutant("the sink is no maximum", "float top = sink;", "float top = -INFINITY;"),
    # The merge.
    Mutant(
        "a split is left out",
        "for (int z = 0; z < splits; z++) {\n    const int64_t at = (z",
        "for (int z = 1; z < splits; z++) {\n    const int64_t at = (z",
    ),
    Mutant("the parts weigh the same", "metal::exp(sums[at * 2] - base) * parts", "parts"),
    Mutant("the parts are divided already", "kPart ? column : divided", "false ? column : divided"),
    Mutant(
        "maximum and sum are swapped",
        "lse[at_row * 2] = top;\n    lse[at_row * 2 + 1] = sum;",
        "lse[at_row * 2] = sum;\n    lse[at_row * 2 + 1] = top;",
    ),
    Mutant(
        "parts carry log-sum-exps",
        "lse[at_row * 2] = top;\n    lse[at_row * 2 + 1] = sum;",
        "lse[at_row * 2] = top + metal::log(sum);\n    lse[at_row * 2 + 1] = 1.0f;",
    ),
    Mutant(
        "the maximum is not in the merged LSE",
        "lse[at_row] = m + metal::log(l)",
        "lse[at_row] = metal::log(l)",
    ),
)
