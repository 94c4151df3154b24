"""Mutants of the headers that all fast kernels share, and the report by which each must be found."""

from .mutant import Mutant

# Found by the bits: the same row differs between two calls.
BITS = "bits"

FAST_MUTANTS = (
    # Which keys a row sees.
    Mutant(
        "the window begins a key too early",
        "first_row + shift - args.left",
        "first_row + shift - args.left - 1",
    ),
    Mutant(
        "the window begins a key too late",
        "first_row + shift - args.left",
        "first_row + shift - args.left + 1",
    ),
    Mutant("the window ends a key too early", "shift + args.right + 1", "shift + args.right"),
    Mutant("the window ends a key too late", "shift + args.right + 1", "shift + args.right + 2"),
    Mutant("the window goes by the row alone", "const int shift = n_k - n_q;", "const int shift = 0;"),
    Mutant(
        "the window goes by the tensors", "const int shift = n_k - n_q;", "const int shift = args.S - args.L;"
    ),
    Mutant(
        "the window ignores the end of the keys", "metal::min(end, last_row", "metal::min(args.S, last_row"
    ),
    Mutant("rows of padding see keys", "last_row = metal::min(last_row, n_q - 1);", ""),
    # Lengths.
    Mutant("lengths are ignored", "if (!has_lengths)", "if (true)"),
    Mutant("q_lens is ignored", "return {n_q, start,", "return {args.L, start,"),
    Mutant("kv_lens is ignored", "length_of(in.kv_lens, args.kv_lens, batch, rest, rest)", "rest"),
    Mutant(
        "without kv_lens the keys end where they began",
        "batch, rest, rest)",
        "batch, args.S, args.S)",
        "out of bounds",
    ),
    Mutant(
        "lengths are not limited",
        "metal::min(metal::max(lengths[int64_t(batch) * input.stride], 0), most)",
        "lengths[int64_t(batch) * input.stride]",
        "out of bounds",
    ),
    Mutant("lengths of 64 bits are taken for 32", "int64_t(batch) * input.stride", "int64_t(batch)"),
    Mutant("all batch entries have the first length", "int64_t(batch) * input.stride", "0"),
    Mutant("a length that is not given is read", "if (!input.given) return absent;", ""),
    # Where the tensors lie.
    Mutant("kv_start is ignored for the keys", "key_head) + start * args.key.row", "key_head)"),
    Mutant("kv_start is ignored for the values", "key_head) + start * args.value.row", "key_head)"),
    Mutant("kv_start is ignored for the mask", " + start * args.mask.key", ""),
    Mutant(
        "batch entries share one place", "batch * strides.batch + head * strides.head", "head * strides.head"
    ),
    Mutant("heads share one place", "batch * strides.batch + head * strides.head", "batch * strides.batch"),
    Mutant(
        "heads of a group lie apart",
        "key_head = head / args.group",
        "key_head = head % (args.heads / args.group)",
    ),
    Mutant(
        "every head has its own key head", "key_head = head / args.group", "key_head = head", "out of bounds"
    ),
    Mutant("the batch entry of the mask is ignored", "batch * args.mask.batch + ", ""),
    Mutant("the head of the mask is ignored", "head * args.mask.head + ", ""),
    Mutant("the batch entry of the sinks is ignored", "batch * args.sinks_batch_stride + ", "", BITS),
    Mutant("all heads have the first sink", " + head * args.sinks_head_stride", ""),
    Mutant(
        "columns of padding are real", "has_padded_head ? args.E : kHeadSize", "kHeadSize", "out of bounds"
    ),
    # Scores.
    Mutant("no soft cap", "has_softcap ? args.softcap * metal::tanh(score / args.softcap) : score", "score"),
    Mutant(
        "the soft cap is applied to the product alone",
        "metal::tanh(score / args.softcap)",
        "metal::tanh(score)",
    ),
    Mutant("the soft cap is not multiplied back", "args.softcap * metal::tanh", "metal::tanh"),
    Mutant("a maximum of -inf is subtracted", "m == -INFINITY ? 0.0f : m;", "m;"),
    Mutant("a row without keys divides by zero", "l == 0.0f ? 0.0f : ", ""),
    Mutant("no sinks", "has_sinks ? in.sinks", "false ? in.sinks"),
    Mutant("a half mask is read as bfloat", "case kHalfMask:", "case kHalfMask + 100:"),
    Mutant("the bool mask is inverted", "mask[at] ? 0.0f : -INFINITY", "mask[at] ? -INFINITY : 0.0f"),
)
