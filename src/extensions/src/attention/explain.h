// What a call would do, without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/problem.h"

namespace tiny_llm_ext {

// The paths that are graphs of MLX operations, and the kernels of gradients.
inline constexpr const char* kReferencePath = "reference";
inline constexpr const char* kMlxPath = "mlx.scaled_dot_product_attention";
inline constexpr const char* kBackwardPath = "cpu.backward";

// The fields of the Python class of the same name.
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
  std::string backward_path, backward_schedule;
};

Explanation explain(const Problem& problem);
// The same for the reference graph and for MLX's operation; `reasons` say why they are taken.
Explanation explain_reference(const Problem& problem, std::vector<std::string> reasons);
Explanation explain_mlx(const Problem& problem, std::vector<std::string> reasons);

}  // namespace tiny_llm_ext
