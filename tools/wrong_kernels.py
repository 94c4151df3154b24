"""Wrong lines of the CPU kernels of attention, and the tests that must fail: the list of tools/mutants.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A wrong kernel: `old`, which occurs once in `file`, becomes `new`; one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "only the first 32 keys are read",
        "cpu/attention/forward-inl.h",
        "if (last > task.key_end - 1) last = task.key_end - 1;",
        "if (last > task.key_end - 1) last = task.key_end - 1;\n  if (last > 31) last = 31;",
        ("lengths",),
    ),
    Mutant(
        "L == S is assumed",
        "cpu/attention/query_tile-inl.h",
        "int64_t position = i + task.n_k - task.n_q;",
        "int64_t position = i;",
        ("lengths",),
    ),
    Mutant(
        "a query head reads another key/value head",
        "cpu/attention/forward_pass.cpp",
        "task.k = k_.at(sequence.entry, kv_head, sequence.k_begin);",
        "task.k = k_.at(sequence.entry, problem_.Hkv - 1 - kv_head, sequence.k_begin);",
        ("grouped_heads",),
    ),
    Mutant(
        "the guard of a maximum of -inf is missing",
        "cpu/attention/online_softmax-inl.h",
        "F base = select(equal(m, set1(-INFINITY)), zero(), m);",
        "F base = m;",
        ("hidden_rows",),
    ),
    Mutant(
        "the output is not rescaled",
        "cpu/attention/online_softmax-inl.h",
        "F alpha = exp2(exponent_between(old, base));",
        "F alpha = set1(1);",
        ("running_maximum",),
    ),
    Mutant(
        "a tile too few at the causal edge",
        "attention/tiles.cpp",
        "last_key(last_row + shift, n_k, right) + 1}",
        "last_key(last_row + shift, n_k, right)}",
        ("lengths",),
    ),
    Mutant(
        "a tile too few at the left edge of a window",
        "attention/tiles.cpp",
        "first_key(first_row + shift, left)",
        "first_key(first_row + shift, left - 1)",
        ("window",),
    ),
    Mutant(
        "hidden tiles are not skipped",
        "cpu/attention/forward-inl.h",
        "if (end < begin || tile[t].any_first >= begin + count) continue;",
        "if (end < begin) end = begin;",
        ("tile_counts",),
    ),
    Mutant(
        "the bound of the last tile is missing",
        "cpu/attention/forward-inl.h",
        "(int)(end - begin < count ? end - begin + 1 : count)",
        "Operands::kKeyTile",
        ("layouts", "nan"),
    ),
    Mutant(
        "the start of a sequence is dropped from an address",
        "cpu/attention/forward_pass.cpp",
        "task.v = v_.at(sequence.entry, kv_head, sequence.k_begin);",
        "task.v = v_.at(sequence.entry, kv_head, 0);",
        ("ragged_batches",),
    ),
    Mutant(
        "the mask is read from the first slot, not the first key",
        "cpu/attention/forward_pass.cpp",
        "task.mask = mask_.view(sequence.entry, batch_, head, sequence.k_begin);",
        "task.mask = mask_.view(sequence.entry, batch_, head, 0);",
        ("masks",),
    ),
    Mutant(
        "all heads of a group read one head of the mask",
        "cpu/attention/mask-inl.h",
        "return (flat % task.gqa_heads) * mask.head_stride + (flat / task.gqa_heads) * mask.row_stride +",
        "return (flat / task.gqa_heads) * mask.row_stride +",
        ("masks",),
    ),
    Mutant(
        "hidden scores are added to, not selected",
        "cpu/attention/online_softmax-inl.h",
        "select(seen, load(s + key * stride), set1(-INFINITY))",
        "add(load(s + key * stride), select(seen, zero(), set1(-INFINITY)))",
        ("nan",),
    ),
    Mutant(
        "a row of NaN counts as empty",
        "cpu/attention/softmax_state.h",
        "if (l == 0) return -INFINITY;",
        "if (!(l > 0)) return -INFINITY;",
        ("nan",),
    ),
    Mutant(
        "the sink is dropped where chunks of keys are merged",
        "cpu/attention/merge.cpp",
        "const float factor = sink ? add_sink(*sink, &m, &l) : 1;",
        "const float factor = 1;",
        ("softcap_and_sinks",),
    ),
    Mutant(
        "chunks of keys are merged without their weights",
        "cpu/attention/merge.cpp",
        "l += weight * partial[E + 1];",
        "l += partial[E + 1];",
        ("lengths",),
    ),
    Mutant(
        "a window has a key too many",
        "attention/arguments/options.cpp",
        "std::pair{*keys - 1, int64_t{0}}",
        "std::pair{*keys, int64_t{0}}",
        ("window",),
    ),
    Mutant(
        "lengths beyond the end are accepted",
        "attention/lengths.cpp",
        "if (length < 0 || length > max) {",
        "if (length < 0) {",
        ("bad_input", "late_lengths"),
    ),
    Mutant(
        "a failed evaluation does not fill its results with NaN",
        "cpu/runtime/dispatch.cpp",
        "for (mx::array& result : results) fill_with_nan(result);",
        "",
        ("late_lengths",),
    ),
    Mutant(
        "the slot is dropped from the address of a key in a page",
        "cpu/attention/pages-inl.h",
        "base + page * page_stride + key % table.size * row_stride",
        "base + page * page_stride",
        ("paged/page_edges",),
    ),
    Mutant(
        "a page has 16 slots, whatever the pool says",
        "cpu/attention/pages-inl.h",
        "key % table.size * row_stride",
        "key % 16 * row_stride",
        ("paged/page_edges",),
    ),
    Mutant(
        "dK lacks the scale",
        "cpu/attention/backward/backward_dkv-inl.h",
        "keys.sums[1], task.E, task.scale,",
        "keys.sums[1], task.E, 1,",
        ("gradients/values",),
    ),
    Mutant(
        "the last row of a GQA group adds nothing to dK and dV",
        "cpu/attention/backward/backward_dkv-inl.h",
        "return {begin * task.gqa_heads, end * task.gqa_heads};",
        "return {begin * task.gqa_heads, end * task.gqa_heads - (task.gqa_heads > 1)};",
        ("gradients/values",),
    ),
    Mutant(
        "the cotangent of the log-sum-exp is ignored",
        "cpu/attention/backward/backward-inl.h",
        "task.d_lse[head * task.d_lse_head_stride + i * task.d_lse_row_stride];",
        "0;",
        ("gradients/values",),
    ),
    Mutant(
        "the slope of the softcap is missing",
        "cpu/attention/backward/score_gradient-inl.h",
        "kKind == ScoreKind::any ? mul(ds, slope) : ds",
        "ds",
        ("gradients/values",),
    ),
    Mutant(
        "NaN of a row that sees nothing reaches dK",
        "cpu/attention/backward/backward_dkv-inl.h",
        "if (!rows.state[j].takes_part()) return (const T*)kZeroRow;",
        "",
        ("gradients/guarantees",),
    ),
    Mutant(
        "slots without a key keep what their memory held",
        "cpu/attention/backward/backward_pass.cpp",
        "    if (gradients_.dk && !pages_) clear_unused_keys();\n",
        "",
        ("gradients/guarantees",),
    ),
    Mutant(
        "dK and dV visit a tile of hidden rows",
        "cpu/attention/backward/backward_dkv-inl.h",
        "if (tile_end <= rows.begin || tile[t].rows.begin >= rows.begin + rows.count) continue;",
        "if (tile_end <= rows.begin) continue;",
        ("gradients/tiles_and_memory",),
    ),
    Mutant(
        "one pass keeps dQ of the last keys only",
        "cpu/attention/backward/backward_dqkv-inl.h",
        "store(out, load_some<Element::f32>(dq_row(task, begin + j) + e + v * kLanes, E - e - v * kLanes));",
        "store(out, zero());",
        ("gradients/schedule",),
    ),
    Mutant(
        "dQ of one pass lacks the scale",
        "cpu/attention/backward/backward_dqkv-inl.h",
        "mul(sum, set1(task.scale))",
        "sum",
        ("gradients/values",),
    ),
    Mutant(
        "one pass leaves NaN in dQ of a row that sees nothing",
        "cpu/attention/backward/backward_dqkv-inl.h",
        "if (!row_state(task, row).takes_part()) {",
        "if (false) {",
        ("gradients/guarantees",),
    ),
    Mutant(
        "one pass skips sequences without queries",
        "cpu/attention/backward/backward_pass.cpp",
        "      task.end = sequence.q_rows * problem_.gqa_heads();\n",
        "      task.end = sequence.q_rows * problem_.gqa_heads();\n      if (!task.end) return;\n",
        ("gradients/schedule",),
    ),
    Mutant(
        "one pass runs whatever its tasks",
        "cpu/attention/backward/backward_plan.cpp",
        "busiest <= kMaxImbalance",
        "busiest > 0",
        ("gradients/schedule",),
    ),
)
