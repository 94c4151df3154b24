// One attention call as plain numbers: all that routing, explain() and the back ends decide from.
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

// The real part of one sequence of the batch: its first n_q queries and its keys kv_start .. kv_start + n_k
// - 1.
struct Sequence {
  int64_t n_q, kv_start, n_k;
};

// Query (B..., Hq, L, E), key (B..., Hkv, S, E), value (B..., Hkv, S, V); B is the product of the batch
// dimensions.
struct Problem {
  int64_t B, Hq, Hkv, L, S, E, V;
  Element dtype;
  int64_t left, right;  // logical keys a row sees on either side of its position; kUnbounded: all
  float scale;
  float softcap;  // 0: none
  bool sinks;
  MaskKind mask;
  bool mask_broadcast;              // the mask lacks a row or a key axis
  bool lengths;                     // sequences have lengths of their own, known or not
  std::vector<Sequence> sequences;  // one a batch entry; empty: all are L and S long, as far as is known
  int64_t copied_bytes;             // inputs that the kernels cannot read where they lie are copied first
  int64_t readable_copied_bytes;    // the same for the GPU's kernel to read
  bool readable;                    // a GPU takes the kernel to read where there is one
  bool batch_invariant;             // no length decides which kernel a GPU takes
  Backend backend;
  const cpu::Kernels* kernels;
  int threads;

  int64_t group() const { return Hq / Hkv; }
  // Query rows that read one KV head, heads and positions folded together.
  int64_t rows() const { return L * group(); }
  Sequence sequence(int64_t b) const { return sequences.empty() ? Sequence{L, 0, S} : sequences[b]; }
  int element_bytes() const { return dtype == Element::f32 ? 4 : 2; }
};

struct Verdict {
  bool ok;
  std::string reason;  // why not
};

// Whether a fused kernel takes the problem. The router reads `ok`, the error prints `reason`.
Verdict fused_kernel(const Problem& problem);

// What a call would do. The fields are those of the Python class of the same name.
struct Explanation {
  std::string path;
  bool fused;
  std::vector<std::string> reasons;
  std::string schedule;
  int64_t tile_rows, tile_keys;
  int64_t splits, tiles_visited, tiles_total;
  std::string mask_read;
  int64_t copies_bytes, workspace_bytes, workspace_bytes_backward, saved_bytes;
  std::string math;
  bool deterministic, batch_invariant;
  std::string backward_path;
};

Explanation explain(const Problem& problem);
// The same for the reference graph; `reason` says why it is taken.
Explanation explain_reference(const Problem& problem, const std::string& reason);

// One row of support.def.
struct Support {
  const char* backend;
  const char* pass;
  const char* dtype;
  int head_size_min, head_size_max;
};

const std::vector<Support>& support();

}  // namespace tiny_llm_ext
