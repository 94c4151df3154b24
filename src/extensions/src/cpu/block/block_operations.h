// The operations of a decoder block on rows in memory, computed at once.
#pragma once

#include <optional>
#include <vector>

#include "block/decoder_block_steps.h"
#include "core/element.h"
#include "cpu/interface/kernels.h"
#include "cpu/quantized/layer_weights.h"
#include "cpu/runtime/rows.h"
#include "cpu/runtime/thread_pool.h"
#include "mlx/allocator.h"

namespace tiny_llm_ext::cpu {

// Rows in memory of which others take care.
struct BlockRows {
  std::byte* data;
  int64_t stride;  // in elements
};

// The operations of one block on `rows` rows, with memory for what they compute; the last product writes
// `result`. They share a team of threads: most are too small to wake a thread for, in small models all of
// them. It has no threads if the block is too small itself.
class BlockOperations {
 public:
  BlockOperations(const DecoderParts& parts, int64_t rows, Element element, std::byte* result,
                  const Kernels& kernels, int threads);

  // x (rows, K) through the block; attend(heads, attended) computes attention, (rows, query heads times
  // size).
  template <class Attend>
  void run(const RowMatrix& x, Attend attend) {
    // Only heads are written in place.
    run_decoder_block(
        parts_, BlockRows{const_cast<std::byte*>(x.at(0)), x.stride()},
        [this](const BlockRows& from, const PackedLayer& layer, const ProductOptions<BlockRows>& options) {
          return multiply(from, layer, options);
        },
        [this](const BlockRows& heads, const FirstNorm& norm) { return normalise(heads, norm); },
        [&](const std::vector<BlockRows>& heads) {
          const BlockRows attended = new_rows(parts_.heads.weights->matrices()[0].outputs);
          attend(heads, attended.data);
          return attended;
        });
  }

 private:
  BlockRows new_rows(int64_t width);
  // As `quantized_linear`.
  std::vector<BlockRows> multiply(const BlockRows& x, const PackedLayer& layer,
                                  const ProductOptions<BlockRows>& options);
  // As `rms_norm`, in place.
  BlockRows normalise(const BlockRows& heads, const FirstNorm& norm) const;

  const DecoderParts& parts_;
  const int64_t rows_;
  const Element element_;
  std::byte* const result_;
  const Kernels& kernels_;
  const int threads_;
  mlx::core::allocator::Data memory_;
  std::byte* free_;  // the part of the memory that no rows have yet
  std::optional<Team> team_;
};

}  // namespace tiny_llm_ext::cpu
