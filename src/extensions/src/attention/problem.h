// One attention call as plain numbers, for routing, explain() and the back ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/element.h"
#include "core/mask.h"
#include "cpu/interface/threads.h"

namespace tiny_llm_ext {

namespace cpu {
struct Kernels;  // opaque to all but the CPU back end
}

enum class Backend { cpu, gpu };

// One sequence: n_q queries from row q_begin on and n_k keys from row k_begin on, of one entry of the batch.
// Packed sequences share an entry.
struct Sequence {
  int64_t n_q, n_k;
  int64_t q_begin, k_begin;
  // Rows of the arrays that belong to it, padding after the queries and around the keys included. A task
  // writes no other rows.
  int64_t q_rows, k_rows;
  int64_t entry;  // of the batch axes
  int64_t index;  // among the sequences: its row of a block table
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
  bool paged;                       // keys and values lie in pages
  bool packed;                      // sequences are some of the L queries and S keys of a batch entry
  std::vector<Sequence> sequences;  // empty: unknown yet, or all rows of each batch entry
  int64_t copied_bytes;             // of inputs that must be copied, because of their strides
  int64_t readable_copied_bytes;    // the same for the readable GPU kernel
  bool readable;                    // prefer the readable GPU kernel of the course
  bool batch_invariant;             // the choice of a GPU kernel must not depend on lengths
  bool keys_outside;                // schedule v1 on the CPU
  Backend backend;
  const cpu::Kernels* kernels;
  cpu::Threads threads;

  // Query heads of a GQA group.
  int64_t gqa_heads() const { return Hq / Hkv; }
  // Query rows of a KV head: positions times heads of its GQA group.
  int64_t rows() const { return L * gqa_heads(); }
  // All rows of a batch entry.
  Sequence whole_entry(int64_t b) const {
    return {.n_q = L, .n_k = S, .q_begin = 0, .k_begin = 0, .q_rows = L, .k_rows = S, .entry = b, .index = b};
  }
  int element_bytes() const { return size_of(dtype); }
};

}  // namespace tiny_llm_ext
