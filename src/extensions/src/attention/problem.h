// One attention call as plain numbers, for routing, explain() and the back ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/element.h"
#include "core/mask.h"

namespace tiny_llm_ext {

namespace cpu {
struct Kernels;  // opaque to all but the CPU back end
}

enum class Backend { cpu, gpu };

// The valid part of one sequence of the batch: queries 0 .. n_q - 1, keys kv_start .. kv_start + n_k - 1.
struct Sequence {
  int64_t n_q, kv_start, n_k;
};

// Query (B..., Hq, L, E), key (B..., Hkv, S, E), value (B..., Hkv, S, V); B is the product of the batch
// dimensions.
struct Problem {
  int64_t B, Hq, Hkv, L, S, E, V;
  Element dtype;
  int64_t left, right;  // logical keys that a row sees before and after its position
  float scale;
  float softcap;  // 0: none
  bool sinks;
  MaskKind mask;
  bool mask_broadcast;              // the mask lacks a row or a key axis
  bool lengths;                     // some length array is given
  std::vector<Sequence> sequences;  // one per batch entry; empty: unknown yet, or L and S
  int64_t copied_bytes;             // of inputs that must be copied, because of their strides
  int64_t readable_copied_bytes;    // the same for the readable GPU kernel
  bool readable;                    // prefer the readable GPU kernel of the course
  bool batch_invariant;             // the choice of a GPU kernel must not depend on lengths
  Backend backend;
  const cpu::Kernels* kernels;
  int threads;

  // Query heads of a GQA group.
  int64_t gqa_heads() const { return Hq / Hkv; }
  // Query rows of a KV head: positions times heads of its GQA group.
  int64_t rows() const { return L * gqa_heads(); }
  Sequence sequence(int64_t b) const { return sequences.empty() ? Sequence{L, 0, S} : sequences[b]; }
  int element_bytes() const { return dtype == Element::f32 ? 4 : 2; }
};

}  // namespace tiny_llm_ext
