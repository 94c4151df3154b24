// Packing of the primitive's inputs, and reading what can be known from them.
#include "attention/inputs.h"

#include <algorithm>
#include <limits>

#include "core/dtype.h"
#include "core/saturating.h"
#include "core/strides.h"
#include "cpu/runtime/allocate.h"

namespace tiny_llm_ext {

std::vector<mx::array> pack(const AttentionInputs& inputs) {
  std::vector<mx::array> arrays = {inputs.query, inputs.key, inputs.value};
  for (const OptionalInput& input : kOptionalInputs) {
    if (const auto& array = inputs.*input.member) arrays.push_back(*array);
  }
  return arrays;
}

AttentionInputs unpack(const std::vector<mx::array>& arrays, const AttentionParams& params) {
  AttentionInputs inputs(arrays[0], arrays[1], arrays[2]);
  for (size_t i = 0, next = 3; i < kOptionalInputs.size(); i++) {
    if (params.present[i]) inputs.*kOptionalInputs[i].member = arrays[next++];
  }
  return inputs;
}

const char* input_name(int n, const AttentionParams& params) {
  constexpr const char* kRequired[] = {"query", "key", "value"};
  if (n < 3) return kRequired[n];
  size_t i = 0;
  for (n -= 3; !params.present[i] || n-- > 0;) i++;
  return kOptionalInputs[i].name;
}

static MaskKind mask_kind(const std::optional<mx::array>& mask) {
  if (!mask) return MaskKind::none;
  if (mask->dtype() == mx::bool_) return MaskKind::boolean;
  return mask->dtype() == mx::float32   ? MaskKind::f32
         : mask->dtype() == mx::float16 ? MaskKind::f16
                                        : MaskKind::bf16;
}

static bool lacks_axis(const mx::array& mask, int axis_from_right, int64_t size) {
  return size > 1 && (static_cast<int>(mask.ndim()) < axis_from_right || mask.shape(-axis_from_right) == 1);
}

// Of the copies that the GPU kernels need of a mask, sinks and lengths.
static int64_t copied_optional_bytes(const AttentionInputs& inputs) {
  int64_t bytes = 0;
  for (const OptionalInput& input : kOptionalInputs) {
    const auto& array = inputs.*input.member;
    if (!array || array->status() == mx::array::unscheduled) continue;
    auto shape = gpu_copy_shape(*array, input.trailing_axes, batch_shape(inputs));
    if (shape) bytes += cpu::bytes_of(*shape, array->dtype());
  }
  return bytes;
}

Problem make_problem(const AttentionInputs& inputs, const AttentionParams& params, mx::Device device) {
  const mx::array &q = inputs.query, &k = inputs.key, &v = inputs.value;
  Problem problem = {};
  problem.B = 1;
  for (int size : batch_shape(inputs)) problem.B = saturating_product({problem.B, size});
  problem.Hq = q.shape(-3);
  problem.Hkv = k.shape(-3);
  problem.L = q.shape(-2);
  problem.S = k.shape(-2);
  problem.E = q.shape(-1);
  problem.V = v.shape(-1);
  problem.dtype = element_of(q.dtype());
  problem.left = params.left;
  problem.right = params.right;
  problem.scale = params.scale.value_or(1 / std::sqrt(static_cast<float>(problem.E)));
  problem.softcap = params.softcap;
  problem.sinks = inputs.sinks.has_value();
  problem.mask = mask_kind(inputs.mask);
  problem.mask_broadcast =
      inputs.mask && (lacks_axis(*inputs.mask, 2, problem.L) || lacks_axis(*inputs.mask, 1, problem.S));
  problem.lengths = has_lengths(inputs);
  problem.readable = params.readable;
  problem.batch_invariant = params.batch_invariant;
  problem.backend = device == mx::Device::cpu ? Backend::cpu : Backend::gpu;
  for (const mx::array& x : {q, k, v}) {
    if (x.status() == mx::array::unscheduled) continue;
    if (problem.backend == Backend::cpu) {
      problem.copied_bytes += last_axis_is_dense(x) ? 0 : cpu::bytes_of(shape_without_repeats(x), x.dtype());
    } else {
      problem.copied_bytes += gpu_reads_in_place(x, batch_shape(inputs), false) ? 0 : x.nbytes();
      problem.readable_copied_bytes += gpu_reads_in_place(x, batch_shape(inputs), true) ? 0 : x.nbytes();
    }
  }
  if (problem.backend == Backend::gpu) {
    const int64_t optional_bytes = copied_optional_bytes(inputs);
    problem.copied_bytes += optional_bytes;
    problem.readable_copied_bytes += optional_bytes;
  }
  problem.kernels = params.kernels;
  problem.threads = params.threads;
  return problem;
}

mx::Shape batch_shape(const AttentionInputs& inputs) {
  const mx::Shape& shape = inputs.query.shape();
  return mx::Shape(shape.begin(), shape.end() - 3);
}

bool has_lengths(const SequenceLengths& lengths) {
  return lengths.q_lens || lengths.kv_start || lengths.kv_lens;
}

static int64_t read_length(const mx::array& lengths, int64_t offset) {
  return lengths.dtype() == mx::int64 ? lengths.data<int64_t>()[offset] : lengths.data<int32_t>()[offset];
}

std::vector<Sequence> read_sequences(const SequenceLengths& lengths, const mx::Shape& batch, int64_t L,
                                     int64_t S, const Wrong& wrong) {
  int64_t count = 1;
  for (int size : batch) count *= size;

  auto reader = [&](const char* name, const std::optional<mx::array>& given) {
    mx::Strides strides = given ? broadcast_strides(*given) : mx::Strides{};
    return [=, &batch, &given, &wrong](int64_t b, int64_t otherwise, int64_t most) {
      if (!given) return otherwise;
      int64_t length = read_length(*given, batch_offset(b, batch, strides));
      if (length < 0 || length > most) {
        wrong(name, std::to_string(length) + " for sequence " + std::to_string(b),
              "0 to " + std::to_string(most));
      }
      return length;
    };
  };
  auto n_q = reader("q_lens", lengths.q_lens);
  auto start = reader("kv_start", lengths.kv_start);
  auto n_k = reader("kv_lens", lengths.kv_lens);

  std::vector<Sequence> sequences(count);
  for (int64_t b = 0; b < count; b++) {
    Sequence& sequence = sequences[b];
    sequence.n_q = n_q(b, L, L);
    sequence.kv_start = start(b, 0, S);
    sequence.n_k = n_k(b, S - sequence.kv_start, S - sequence.kv_start);
  }
  return sequences;
}

int64_t slots_of_row(const std::vector<mx::array>& inputs) {
  const mx::array &key_pages = inputs[1], &block_table = inputs[3];
  return int64_t{block_table.shape(1)} * key_pages.shape(2);
}

std::vector<Sequence> read_contexts(const std::vector<mx::array>& inputs, const Wrong& wrong) {
  const mx::array& context_lens = inputs[4];
  const int64_t L = inputs[0].shape(1), slots = slots_of_row(inputs);
  std::vector<Sequence> sequences;
  for (int64_t b = 0; b < context_lens.shape(0); b++) {
    const int64_t length = context_lens.data<int32_t>()[b * context_lens.strides(0)];
    if (length > slots) {
      wrong("context_lens", std::to_string(length) + " for sequence " + std::to_string(b),
            "at most the " + std::to_string(slots) + " slots of its row of block_table");
    }
    sequences.push_back({L, 0, std::max<int64_t>(length, 0)});
  }
  return sequences;
}

static bool runs_backwards(const mx::array& array) {
  return std::any_of(array.strides().begin(), array.strides().end(), [](int64_t s) { return s < 0; });
}

bool gpu_reads_in_place(const mx::array& array, const mx::Shape& batch, bool readable) {
  if (array.size() == 0 || array.flags().row_contiguous) return true;
  return !readable && !runs_backwards(array) && last_axis_is_dense(array) && batch_stride(array, 3, batch);
}

std::optional<mx::Shape> gpu_copy_shape(const mx::array& array, int trailing, const mx::Shape& batch) {
  // Lengths are read by a stride of 32 bits, which counts 32 bits.
  constexpr int64_t kFarthest = std::numeric_limits<int32_t>::max() / 2;
  std::optional<int64_t> stride = batch_stride(array, trailing, batch);
  const bool too_far = trailing == 0 && stride > kFarthest;
  if (stride && !too_far && !runs_backwards(array)) return std::nullopt;
  const int own = std::min(trailing, static_cast<int>(array.ndim()));
  mx::Shape shape = batch;
  shape.insert(shape.end(), trailing - own, 1);
  shape.insert(shape.end(), array.shape().end() - own, array.shape().end());
  return shape;
}

}  // namespace tiny_llm_ext
